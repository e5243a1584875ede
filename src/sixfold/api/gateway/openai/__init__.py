"""OpenAI's dialect: chat completions, responses, pictures, sound, vectors, the list of models."""
