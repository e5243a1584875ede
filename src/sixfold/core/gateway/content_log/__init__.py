"""The content log: requests and responses of calls, for accounts that have switched it on."""
