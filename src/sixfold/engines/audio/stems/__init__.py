"""Separation of a mix into stems."""
