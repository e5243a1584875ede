"""OpenAI's images API."""
