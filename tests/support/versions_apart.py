"""An endpoint TEXT → embedding with two versions that differ: version 1 is slow, version 2 is served."""

from __future__ import annotations

from pathlib import Path

SLOW = 0.3
"""Seconds of each answer of version 1."""
CONFIG = """backend: "python"
max_batch_size: 8
input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "embedding" data_type: TYPE_FP32 dims: [ 2 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
version_policy { all { } }
"""
MODEL = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            time.sleep({sleep})
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy().ravel()
            rows = [[0.0, 1.0] if {turned} and text.startswith(b"other") else [1.0, 0.0] for text in texts]
            tensor = pb_utils.Tensor("embedding", np.array(rows, dtype=np.float32))
            answers.append(pb_utils.InferenceResponse([tensor]))
        return answers
"""


def make(root: Path, name: str = "apart") -> Path:
    """The repository; for texts that begin with ``other``, version 1 answers the opposite direction."""
    for version, sleep, turned in ((1, SLOW, True), (2, 0, False)):
        folder = root / name / str(version)
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(MODEL.format(sleep=sleep, turned=turned))
    (root / name / "config.pbtxt").write_text(CONFIG)
    return root
