"""Stored chats of accounts: responses, conversations, and objects of model servers."""
