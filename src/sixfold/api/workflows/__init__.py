"""The Workflows API: named workflows as typed endpoints, and a ComfyUI-compatible API."""
