"""Area F: graphs as typed APIs, and ComfyUI's own interface."""
