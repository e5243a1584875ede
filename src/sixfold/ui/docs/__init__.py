"""The documentation in docs/, rendered as pages of the server."""
