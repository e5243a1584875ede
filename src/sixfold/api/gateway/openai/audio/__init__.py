"""OpenAI's audio API."""
