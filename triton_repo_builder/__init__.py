"""From an exported ONNX model to a measured, verified NVIDIA Triton deployment."""

import os

__version__ = "0.1.0"

# Before anything imports onnxruntime, here and in the server: its telemetry writes TMPDIR/.ses, even through
# a link that somebody planted there, and reports to Microsoft.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
