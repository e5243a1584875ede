"""Videos without weights: a camera that moves through an input image or a painted scene."""
