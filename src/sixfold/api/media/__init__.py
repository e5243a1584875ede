"""Area A: pictures and films by a key in the body, errors as `{"error","status"}`."""
