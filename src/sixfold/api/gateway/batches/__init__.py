"""Batches in the formats of OpenAI and Anthropic, with one implementation."""
