"""Index entries of pages: passages, and the words that search compares."""
