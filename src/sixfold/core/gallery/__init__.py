"""The public gallery: characters and posts of all accounts."""
