"""Shares: links by which anyone can read one object of an account until the share ends."""
