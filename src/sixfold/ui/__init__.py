"""Pages for people: rendered on the server, readable without scripts, one sheet of tokens."""
