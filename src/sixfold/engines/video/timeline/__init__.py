"""Rendering of a timeline: the images, text, videos and audio of its clips become one video."""
