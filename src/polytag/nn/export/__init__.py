"""Export of trained networks to ONNX."""
