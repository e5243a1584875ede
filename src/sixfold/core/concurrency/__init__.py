"""Work that concurrent requests share or that runs one at a time."""
