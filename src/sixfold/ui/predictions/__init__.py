"""The pages of predictions, and the endpoints of run forms."""
