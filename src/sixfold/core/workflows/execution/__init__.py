"""Runs a validated graph: ready nodes on the event loop or in node workers, within a memory limit."""
