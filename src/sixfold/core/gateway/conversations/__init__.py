"""Stored chats of accounts: chats of the page, and conversations and responses of the API."""
