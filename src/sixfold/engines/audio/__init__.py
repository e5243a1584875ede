"""Sound without weights."""
