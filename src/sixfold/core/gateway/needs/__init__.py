"""What requests need of a model and its provider, and which targets meet it."""
