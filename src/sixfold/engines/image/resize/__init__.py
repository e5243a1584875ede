"""An image at exact sizes, with its subject and its faces kept."""
