"""Conversion of media: transcoding, trimming, previews, and size reduction for web pages."""
