"""An endpoint's own answers, by KServe's HTTP protocol with raw floats: nothing of trb takes part."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from typing import Any

import numpy as np

FLOATS = {"FP32": np.float32, "FP64": np.float64, "INT32": np.int32, "INT64": np.int64}
ROWS = 32
"""Rows of a request: the max_batch_size of every endpoint here, as the gateway splits lists."""

Array = np.ndarray[Any, Any]


class Server:
    """A running tritonserver."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, model: str, **columns: Sequence[Any]) -> dict[str, Any]:
        """Outputs for rows of texts, or of lists of texts: floats in arrays, strings in lists."""
        rows = len(next(iter(columns.values())))
        starts = range(0, rows, ROWS)
        parts = [
            self._infer(model, {name: values[start : start + ROWS] for name, values in columns.items()})
            for start in starts
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def file(self, model: str, name: str, content: bytes) -> dict[str, Array]:
        """Outputs for one file, as raw bytes."""
        raw = len(content).to_bytes(4, "little") + content
        about = {"name": name, "datatype": "BYTES", "shape": [1, 1]}
        tensor = {**about, "parameters": {"binary_data_size": len(raw)}}
        return self._post(model, [tensor], raw)

    def vectors(self, model: str, texts: Sequence[str]) -> Array:
        """Embeddings of texts, float32."""
        vectors: Array = self.ask(model, TEXT=texts)["embedding"]
        return vectors

    def _infer(self, model: str, columns: dict[str, Sequence[Any]]) -> dict[str, Array]:
        tensors = []
        for name, values in columns.items():
            rows = [list(row) if isinstance(row, (list, tuple)) else [row] for row in values]
            shape = [len(rows), len(rows[0])]
            data = [text for row in rows for text in row]
            tensors.append({"name": name, "datatype": "BYTES", "shape": shape, "data": data})
        return self._post(model, tensors)

    def _post(self, model: str, tensors: list[dict[str, Any]], raw: bytes = b"") -> dict[str, Array]:
        body = {"inputs": tensors, "parameters": {"binary_data_output": True}}
        header = json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/v2/models/{model}/infer",
            header + raw,
            {"Inference-Header-Content-Length": str(len(header))},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            length = int(answer.headers["Inference-Header-Content-Length"])
            content = answer.read()
        outputs, content = json.loads(content[:length])["outputs"], content[length:]
        arrays = {}
        for output in outputs:
            size = output["parameters"]["binary_data_size"]
            arrays[output["name"]] = _array(output["datatype"], output["shape"], content[:size])
            content = content[size:]
        return arrays


def _array(datatype: str, shape: list[int], content: bytes) -> Array:
    if datatype in FLOATS:
        return np.frombuffer(content, dtype=FLOATS[datatype]).reshape(shape)
    texts = []
    while content:
        end = 4 + int.from_bytes(content[:4], "little")
        texts.append(content[4:end].decode())
        content = content[end:]
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array.reshape(shape)
