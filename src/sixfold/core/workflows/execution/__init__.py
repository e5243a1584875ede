"""Execution of a validated graph: nodes run on the event loop or in node workers, within a memory limit."""
