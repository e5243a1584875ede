"""The organization of a key: members, invitations, teams, keys and budgets."""
