"""Rendering of a timeline: images, text, videos and audio of many clips into one video."""
