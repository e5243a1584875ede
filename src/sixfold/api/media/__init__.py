"""The Media API: images and videos, with the key in the body and errors as `{"error","status"}`."""
