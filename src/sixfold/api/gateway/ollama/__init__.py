"""Ollama's API under `/ollama`, over every model that the gateway routes."""
