"""Motion within the scene of a video: water, clouds and particles, and painted vehicles and animals."""
