"""Numbers: how a series goes on."""
