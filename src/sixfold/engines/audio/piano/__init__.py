"""A piano that composes what it plays."""
