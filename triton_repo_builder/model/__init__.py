"""The ONNX file and what lies beside it: reading, and graphs."""
