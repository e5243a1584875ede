"""OpenAI's videos API."""
