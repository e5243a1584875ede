"""Cutting subjects out: without weights (`cut`, `edges`), and by ONNX models."""
