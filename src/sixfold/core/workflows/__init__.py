"""Graphs of nodes: what they are made of, whether they are right, what they become, and their run.

A graph is ComfyUI's API format: `{node id: {"class_type", "inputs", "_meta"?}}`, where an input is a value
or a link `[node id, slot]`. `ports` and `nodes` say what a node is; `validate`, `convert` and `execute` are
what is done with a graph.
"""
