"""Pictures into drawings of paths."""
