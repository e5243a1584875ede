"""Taking things out of pictures: what is behind a mask is made up from what lies around it."""
