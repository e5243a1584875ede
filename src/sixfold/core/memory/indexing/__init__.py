"""What search keeps of each page: its passages, and the words by which they are compared."""
