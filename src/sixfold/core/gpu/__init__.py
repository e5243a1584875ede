"""Sharing of a GPU's memory between model servers, ComfyUI and local weights, which take turns."""
