"""Finding models, pages, runs, chats, settings and guides of an account."""
