"""Search over pages: how a question is compared with what is kept of them, and how results are ranked."""
