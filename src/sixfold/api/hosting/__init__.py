"""The Hosting API: runs, predictions, templates, spaces and sessions, with coded errors."""
