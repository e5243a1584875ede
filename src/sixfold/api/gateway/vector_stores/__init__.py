"""OpenAI's vector stores."""
