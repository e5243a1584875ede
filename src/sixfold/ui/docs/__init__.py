"""The documentation for people: what docs/ holds, laid out as pages of the site."""
