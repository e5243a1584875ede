"""Batches of calls: validated, run in the background with leases, and answered in files."""
