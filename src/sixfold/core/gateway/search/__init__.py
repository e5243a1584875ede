"""Web search for models."""
