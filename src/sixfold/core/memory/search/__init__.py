"""Search over pages: matching of queries and ranking of results."""
