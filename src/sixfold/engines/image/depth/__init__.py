"""How near each part of an image is, and what can be shown of it."""
