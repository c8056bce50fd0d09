"""A hand-made embedding endpoint whose answer is a digest of its text, after a wait for each request.

Two texts have the same answer only if they are equal, so that an answer to another client's text shows.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

WIDTH = 8
MODEL = """
import hashlib
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            time.sleep(@SECONDS@)
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy().reshape(-1)
            digests = b"".join(hashlib.sha256(text).digest()[:@WIDTH@] for text in texts)
            rows = np.frombuffer(digests, np.uint8).reshape(len(texts), @WIDTH@).astype(np.float32)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("embedding", rows)]))
        return answers
"""
CONFIG = """backend: "python"
max_batch_size: @ROWS@
input [{ name: "TEXT" data_type: TYPE_STRING dims: [1] }]
output [{ name: "embedding" data_type: TYPE_FP32 dims: [@WIDTH@] }]
dynamic_batching { }
instance_group [{ count: 1 kind: KIND_CPU }]
"""


def write(root: Path, name: str, seconds: float = 0.0, *, rows: int = 32) -> Path:
    """The endpoint in a repository.

    It has a dynamic batcher: Triton drops abandoned requests in the queue of one only.
    """
    folder = root / name
    (folder / "1").mkdir(parents=True)
    values = {"@SECONDS@": str(seconds), "@WIDTH@": str(WIDTH), "@ROWS@": str(rows)}
    for file, text in {"1/model.py": MODEL, "config.pbtxt": CONFIG}.items():
        for word, value in values.items():
            text = text.replace(word, value)
        (folder / file).write_text(text)
    return root


def embedding(text: str) -> list[float]:
    """The endpoint's answer to a text."""
    return np.frombuffer(hashlib.sha256(text.encode()).digest()[:WIDTH], np.uint8).astype(float).tolist()
