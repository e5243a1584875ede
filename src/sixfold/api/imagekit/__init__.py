"""Area C, the image utility service: pictures by query string, style transfer, errors as `{"detail"}`."""
