"""Still images of media files."""
