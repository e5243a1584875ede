"""Requirements of requests for a model and its provider, and the targets that meet them."""
