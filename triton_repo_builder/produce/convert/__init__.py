"""``trb convert``: PyTorch weights to an ONNX folder with PyTorch's own answers, for ``trb build``."""
