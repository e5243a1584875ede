"""The pages of the memory: browse, search, read, edit, compare and merge."""
