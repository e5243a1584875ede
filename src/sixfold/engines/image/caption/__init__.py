"""An image in words: what can be measured of it, and what that says."""
