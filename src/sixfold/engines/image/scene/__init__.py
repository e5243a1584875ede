"""The scene engine: text-to-image without weights."""
