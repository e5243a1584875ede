"""The scene painter: an embedded text-to-image engine that needs no weights."""
