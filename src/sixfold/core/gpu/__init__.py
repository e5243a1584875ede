"""Shares the memory of a GPU between model servers, ComfyUI and own weights, which take turns."""
