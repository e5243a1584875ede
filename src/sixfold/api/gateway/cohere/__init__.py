"""Cohere's chat API in both versions, served by every chat model of the gateway."""
