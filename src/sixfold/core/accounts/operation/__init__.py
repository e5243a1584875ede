"""What operators do: the accounts of others, with a record of each action."""
