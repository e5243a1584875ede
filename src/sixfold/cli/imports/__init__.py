"""`import`: take over the configuration of another gateway."""
