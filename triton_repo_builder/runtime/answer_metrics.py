"""Runs inside tritonserver: metrics of a graph's own answers, if no Python model comes after it.

``Answers`` counts them by the names of the graph's outputs. The embedded engine's onnxruntime backend is in
Python and counts every answer. Triton's own shows its answers to nobody. So the Python model before it, whose
config.pbtxt names the graph's model (``answers_model``, and of its outputs ``answers``), sends it one row in
``EVERY`` again and counts that answer (``AnswerSample``; docs/metrics.md has other ways that were tried).

Needs numpy, and ``metrics.py`` from its caller.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

EVERY = 200
"""Rows for one sample: 0.5 % of the throughput, and fewer than one request in a hundred waits for one."""
FIRST, RETRY = 1.0, 10.0
"""Seconds until the first sample, while the other models load, and after one that failed."""
LEAST = 1.0
"""Seconds between two samples: small models answer thousands of rows a second."""
LONGEST_PAUSE = 1.0


class Answers:
    """Counts the answers of some outputs: ``answers(outputs)`` with arrays by name, [rows, ...]."""

    def __init__(self, metrics: Any, outputs: Sequence[str]) -> None:
        self._count = next((_COUNTS[key](metrics) for key in _COUNTS if set(key) <= set(outputs)), None)

    def __call__(self, outputs: Mapping[str, Any]) -> None:
        """Outputs that a request does not ask for are missing; then nothing is counted."""
        if self._count is not None:
            self._count(outputs)


def _labels(metrics: Any) -> Callable[[Mapping[str, Any]], None]:
    label, confidence = metrics.answers(), metrics.confidence()

    def count(outputs: Mapping[str, Any]) -> None:
        for value in _flat(outputs, "label"):
            label(_text(value))
        for value in _flat(outputs, "score"):
            confidence(float(value))

    return count


def _boxes(metrics: Any) -> Callable[[Mapping[str, Any]], None]:
    box = metrics.boxes()

    def count(outputs: Mapping[str, Any]) -> None:
        if "labels" in outputs:
            for labels, boxes in zip(outputs["labels"], _flat(outputs, "count"), strict=False):
                for value in labels[: int(boxes)]:
                    box(_text(value))

    return count


def _norms(metrics: Any) -> Callable[[Mapping[str, Any]], None]:
    norm = metrics.norm()

    def count(outputs: Mapping[str, Any]) -> None:
        if "embedding" in outputs:
            vectors = np.asarray(outputs["embedding"], dtype=np.float32)
            for value in np.sqrt(np.square(vectors).sum(axis=-1)).reshape(-1).tolist():
                norm(value)

    return count


_COUNTS = {("label", "score"): _labels, ("labels", "count"): _boxes, ("embedding",): _norms}
"""By the outputs that a task's head gives (``endpoint/render/answers.py`` has the same names)."""


def _flat(outputs: Mapping[str, Any], name: str) -> Any:
    return outputs[name].reshape(-1) if name in outputs else ()


def _text(label: Any) -> str:
    return label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)


class AnswerSample:
    """Sends a row of tensors to the model behind this one from time to time, and counts the answer.

    A sample is due after ``EVERY`` rows, or when ``EVERY`` times as long as the last one took has passed, but
    ``LEAST`` seconds after the last one.
    """

    def __init__(self, metrics: Callable[[dict[str, str]], Any], args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config.get("parameters", {}).items()}
        self._model = parameters.get("answers_model", "")
        self._names = parameters.get("answers", "").split(",")
        # The ensemble's steps have equal version numbers; the newest model might take other tokens.
        self._version = int(args.get("model_version", "-1"))
        self._batched = config.get("max_batch_size", 0) > 0
        self._every = EVERY * max(1, sum(group.get("count", 1) for group in config.get("instance_group", [])))
        self._metrics = metrics({**args, "model_name": self._model}) if self._model else None
        self._answers = Answers(self._metrics, self._names) if self._metrics else None
        self._off = self._answers is None or counted_by_the_backend()
        self._rows, self._pause = 0, 0.0
        self._free = self._due = time.monotonic() + FIRST
        self._timer: threading.Timer | None = None

    def offer(self, responses: Sequence[Any]) -> None:
        """Responses of this model, of which the first row may become a sample."""
        if self._off:
            return
        for response in responses:
            if not response.has_error():
                tensors = response.output_tensors()
                self._rows += len(tensors[0].as_numpy()) if self._batched else 1
                if self._timer is None and self._is_due(time.monotonic()):
                    self._send_later(tensors)

    def _is_due(self, now: float) -> bool:
        return now >= self._free and (self._rows >= self._every or now >= self._due)

    def _send_later(self, tensors: Sequence[Any]) -> None:
        """Not at once: the request itself comes first, and both would compete for the cores."""
        arrays = {tensor.name(): tensor.as_numpy() for tensor in tensors}
        row = {name: array[:1].copy() if self._batched else array for name, array in arrays.items()}
        self._timer = threading.Timer(self._pause, self._send, (row,))
        self._timer.daemon = True
        self._timer.start()

    def _send(self, row: Mapping[str, Any]) -> None:
        begun, due, free = time.monotonic(), RETRY, RETRY
        try:
            response = pb_utils.InferenceRequest(
                model_name=self._model,
                model_version=self._version,
                requested_output_names=self._names,
                inputs=[pb_utils.Tensor(name, array) for name, array in row.items()],
                preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
            ).exec()
            if not response.has_error() and self._answers is not None:
                self._answers({tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()})
                took = time.monotonic() - begun
                due, free, self._pause = took * self._every, LEAST, min(2 * took, LONGEST_PAUSE)
        finally:
            now = time.monotonic()
            self._rows, self._due, self._free, self._timer = 0, now + due, now + free, None

    def close(self) -> None:
        """From the model's ``finalize``."""
        self._off = True
        if (timer := self._timer) is not None:
            timer.cancel()
        if self._metrics is not None:
            self._metrics.close()


def counted_by_the_backend() -> bool:
    """Whether this server's onnxruntime backend is ours, in Python, beside the Python backend's."""
    stub = Path("/proc/self/exe").resolve()
    return (stub.parents[1] / "onnxruntime" / "model.py").is_file()
