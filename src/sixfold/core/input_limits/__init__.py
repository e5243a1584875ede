"""Readers of untrusted input that bound its size, nesting and time before they build anything."""
