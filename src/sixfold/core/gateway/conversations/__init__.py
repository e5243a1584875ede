"""Stored chats of the page `/chat`, and stored conversations and responses of the API."""
