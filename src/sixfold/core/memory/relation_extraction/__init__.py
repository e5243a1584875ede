"""Relations that are extracted from plain sentences and stored in addition to explicit links."""
