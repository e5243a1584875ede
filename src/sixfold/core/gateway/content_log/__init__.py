"""The content log: requests and responses of calls, for accounts that have enabled it."""
