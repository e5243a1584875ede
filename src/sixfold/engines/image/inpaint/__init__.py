"""Taking things out of images: what is behind a mask is made up from what lies around it."""
