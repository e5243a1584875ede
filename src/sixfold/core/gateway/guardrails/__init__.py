"""Guardrails: masking and checks of requests and responses of the gateway."""
