"""Procedural body motion as poses of a skeleton: walking, running, jumping, waving, sitting, dancing."""
