"""Workflows: graphs of nodes, their validation, conversion, pricing and execution.

A graph has ComfyUI's API format: `{node id: {"class_type", "inputs", "_meta"?}}`, where an input is a value
or a link `[node id, slot]`. `ports` and `nodes` define nodes; `validate`, `editor_format` and `execution`
operate on graphs; `comfyui` serves clients that are written for ComfyUI.
"""
