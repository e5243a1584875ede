"""Captions from measurements of an image."""
