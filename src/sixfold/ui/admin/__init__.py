"""The operator's pages and the lab."""
