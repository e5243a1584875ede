"""Provenance of outputs: a signed manifest, embedded in the file's own metadata.

`manifest` defines the content, `signing` signs and verifies it, and `embed` writes it into a file and reads
it back without a media library, leaving pixels and samples unchanged.
"""
