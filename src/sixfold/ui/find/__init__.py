"""Search over the models, pages, runs, chats, settings and guides that a user may see."""
