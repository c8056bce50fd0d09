"""Reading and composing ONNX graphs: the only importers of ``onnx``."""
