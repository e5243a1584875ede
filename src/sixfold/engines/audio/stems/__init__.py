"""A mix taken apart."""
