"""The memory for people: browse, search, read, edit, compare, merge."""
