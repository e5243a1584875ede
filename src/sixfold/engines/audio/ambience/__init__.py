"""Synthesis of ambient sound from a prompt: places, weather, animals, people and background music."""
