"""Images into drawings of paths."""
