"""Resizing to exact sizes, with preservation of the subject and of faces."""
