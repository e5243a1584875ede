"""The account's pages: balance, keys, spending, security, export and deletion."""
