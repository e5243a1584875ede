"""Organizations: accounts whose members act on their behalf."""
