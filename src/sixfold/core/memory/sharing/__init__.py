"""Folders of the memory that other accounts and teams read or write."""
