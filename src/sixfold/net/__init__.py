"""Outgoing requests to addresses that a caller has named."""
