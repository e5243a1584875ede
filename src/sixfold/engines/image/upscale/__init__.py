"""Enlarging images: twice or four times, with and without weights."""
