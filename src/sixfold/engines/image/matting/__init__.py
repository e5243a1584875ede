"""Background removal: without weights (`segmentation`, `edges`), and with ONNX models."""
