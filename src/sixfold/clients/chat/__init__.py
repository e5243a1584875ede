"""Clients of chat model servers: three protocols and their transports."""
