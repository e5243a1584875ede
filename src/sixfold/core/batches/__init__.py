"""Batches of calls: validated, run in the background by leases, and answered in files."""
