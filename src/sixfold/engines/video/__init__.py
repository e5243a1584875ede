"""Films without weights: a camera that moves through a still, which is sent in or painted."""
