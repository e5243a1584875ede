"""Enlarging pictures: twice or four times, with and without weights."""
