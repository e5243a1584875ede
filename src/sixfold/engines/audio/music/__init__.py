"""Music without weights: what is played, who plays it, and how it is put together."""
