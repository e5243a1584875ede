"""Provenance of outputs: a signed manifest, embedded in the file's metadata.

`manifest` defines the content, `signing` signs and verifies it, and `embed` writes it to a file and reads it
without a media library, leaving pixels and samples unchanged.
"""
