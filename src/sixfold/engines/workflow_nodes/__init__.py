"""Classes of nodes that run here: pixels, masks, sound, films, and models' work ordered from the platform."""
