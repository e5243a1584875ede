"""Batches in the formats of OpenAI and Anthropic, over one engine."""
