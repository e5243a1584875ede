"""What accounts show to everybody: characters and posts."""
