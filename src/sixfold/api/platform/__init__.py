"""Endpoints that all APIs share: uploads, media files, the account, health and metrics."""
