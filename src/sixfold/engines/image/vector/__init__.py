"""Vector drawings from images."""
