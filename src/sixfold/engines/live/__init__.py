"""Engines of live sessions: explorable worlds and body motion."""
