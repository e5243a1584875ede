"""OpenAI's dialect: chat completions, responses, the list of models."""
