"""The pages of an organization: its members, teams, keys and invitations."""
