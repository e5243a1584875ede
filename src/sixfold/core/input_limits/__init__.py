"""Readers of untrusted input that limit its size, nesting and time before they build objects."""
