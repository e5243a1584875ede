"""Work that concurrent requests share, and work that is serialized."""
