"""Conversations over a websocket: their items and audio, and the detection of speech."""
