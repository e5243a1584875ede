"""The Gateway API: services by name, and the APIs of OpenAI and Anthropic, with one key."""
