"""Import and export of pages as files and archives."""
