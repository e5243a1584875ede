"""Conversations over a websocket: their items, their audio, and the detection of speech."""
