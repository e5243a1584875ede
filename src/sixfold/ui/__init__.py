"""The web pages: rendered on the server and readable without scripts."""
