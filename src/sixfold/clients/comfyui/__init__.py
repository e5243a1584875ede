"""ComfyUI's protocol, read from its server.py and execution.py (0.3.64, 0.8.0, and those of late 2026).

`server` makes the calls, `hearing` understands what is said during a run, and `faults` makes one sentence
of whatever goes wrong: three nouns, and too long for one file.
"""
