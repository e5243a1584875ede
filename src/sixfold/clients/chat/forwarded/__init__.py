"""Protocols whose requests are forwarded unchanged: media, rankings and text completions."""
