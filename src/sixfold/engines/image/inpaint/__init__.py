"""Inpainting: fills the part behind a mask from its surroundings."""
