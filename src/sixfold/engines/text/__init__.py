"""Engines for text embeddings."""
