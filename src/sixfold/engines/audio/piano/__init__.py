"""Composition and synthesis of piano music."""
