"""Clients of chat model servers: protocols, transports and lists of models."""
