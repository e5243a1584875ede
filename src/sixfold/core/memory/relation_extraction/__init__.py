"""Relations drawn from plain sentences: found, given to pages, kept beside the links that people wrote."""
