"""Small still images of images and videos, for lists on pages and for the videos API."""
