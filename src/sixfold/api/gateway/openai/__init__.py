"""The OpenAI API: chat completions, responses, images, audio, embeddings and the list of models."""
