"""What all areas share: uploads, media files, the account, health, metrics."""
