"""Relations that are extracted from plain sentences and stored besides the explicit links."""
