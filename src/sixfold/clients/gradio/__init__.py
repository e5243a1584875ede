"""Gradio 4, 5 and 6 as an upstream: what an application takes, and runs of it through its queue."""
