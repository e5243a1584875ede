"""Ollama's API under `/ollama`, for every model of the gateway."""
