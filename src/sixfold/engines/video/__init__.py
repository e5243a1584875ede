"""Videos without weights: a camera that moves through an input image or through a painted scene."""
