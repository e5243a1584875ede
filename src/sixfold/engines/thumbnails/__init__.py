"""Small still images of images, videos and audio, for lists on pages and for the videos API."""
