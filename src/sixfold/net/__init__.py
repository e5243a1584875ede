"""Outgoing requests to URLs that callers can set."""
