"""Organizations: accounts that several persons act for."""
