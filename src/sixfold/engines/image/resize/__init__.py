"""Resizing to exact sizes that keeps the subject and its faces."""
