"""Depth estimation, and images of depth maps."""
