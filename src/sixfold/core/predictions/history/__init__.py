"""The history of an account: a searchable list of runs and live sessions, recent files, and deletion."""
