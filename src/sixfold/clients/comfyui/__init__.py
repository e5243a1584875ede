"""ComfyUI's protocol, read from its server.py and execution.py (0.3.64, 0.8.0, and those of late 2026).

`server` makes the calls, `events` handles the messages of a run, and `errors` turns failures into
one-sentence messages.
"""
