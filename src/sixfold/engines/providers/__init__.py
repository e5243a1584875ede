"""Engines that call other servers: hosted providers, ComfyUI, Gradio spaces and Cog containers."""
