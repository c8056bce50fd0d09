"""From an exported ONNX model to a measured, verified NVIDIA Triton deployment."""

__version__ = "0.1.0"
