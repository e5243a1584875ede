"""The Image utility API: images by query string, style transfer, and errors as `{"detail"}`."""
