"""Guardrails: what is masked, checked and blocked before and after a call of the gateway."""
