"""Services for ComfyUI clients: their websockets, the queue of their prompts, and edits of their images."""
