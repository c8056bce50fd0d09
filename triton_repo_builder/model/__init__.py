"""The ONNX file and the files beside it: reading, and graphs."""
