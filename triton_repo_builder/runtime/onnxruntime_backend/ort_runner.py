"""Answer the requests of one execute with few runs of the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort
import triton_python_backend_utils as pb_utils

if TYPE_CHECKING:
    from triton_repo_builder.runtime.onnxruntime_backend.ort_batch_inputs import (
        batch_inputs,
        batch_outputs,
        scatter,
    )
    from triton_repo_builder.runtime.onnxruntime_backend.ort_checks import dims_of
    from triton_repo_builder.runtime.onnxruntime_backend.ort_errors import ort_text
    from triton_repo_builder.runtime.onnxruntime_backend.ort_settings import run_options
else:
    from ort_batch_inputs import batch_inputs, batch_outputs, scatter
    from ort_checks import dims_of
    from ort_errors import ort_text
    from ort_settings import run_options

Array = np.ndarray[Any, Any]
Meter = Callable[[int, float, Mapping[str, Array]], None]
"""Is told of each execution: rows, seconds, outputs."""


@dataclass(slots=True)
class Item:
    """One request, read: its arrays are views into shared memory that end with the execute."""

    arrays: dict[str, Array]
    rows: int
    outputs: list[str]


class TooFewRows(Exception):
    """An output that has no row for a request."""


class Runner:
    """Answers requests with one session. Its answers are those of the C++ backend, request by request."""

    def __init__(self, config: dict[str, Any], session: ort.InferenceSession) -> None:
        self._session = session
        self._options = run_options(config)
        self._batching = config["max_batch_size"] > 0
        self._ragged = frozenset(
            entry["name"] for entry in config["input"] if entry.get("allow_ragged_batch")
        )
        infos = [*session.get_inputs(), *session.get_overridable_initializers()]
        self._scalars = frozenset(node.name for node in infos if not node.shape)
        self._strings = frozenset(node.name for node in infos if node.type == "tensor(string)")
        self._derived = batch_inputs(config)
        self._scattered = batch_outputs(config)
        self._scalar_dims = {entry["name"]: dims_of(entry) for entry in config["output"]}
        self.meter: Meter | None = None

    def run(self, requests: Sequence[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """One response per request, in order."""
        items = [self._read(request) for request in requests]
        if len(items) == 1 or not self._batching or self._scalars:
            # A scalar input has no rows to join: it belongs to one request.
            return [self._alone(item) for item in items]
        alike: dict[Any, list[int]] = {}
        for index, item in enumerate(items):
            alike.setdefault(self._key(item), []).append(index)
        responses: list[Any] = [None] * len(items)
        for members in alike.values():
            group = [items[index] for index in members]
            answers = self._together(group) if len(group) > 1 else [self._alone(*group)]
            for index, response in zip(members, answers, strict=True):
                responses[index] = response
        return responses

    def _together(self, items: list[Item]) -> list[pb_utils.InferenceResponse]:
        """Answer all in one run; if that fails, each alone: a bad request fails none of its neighbours."""
        try:
            return self._answers(items)
        except Exception:
            return [self._alone(item) for item in items]

    def _read(self, request: pb_utils.InferenceRequest) -> Item:
        arrays = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        rows = next(iter(arrays.values())).shape[0] if self._batching and arrays else 0
        # Triton gives a set; older ONNX Runtimes take only a list.
        return Item(arrays, rows, list(request.requested_output_names()))

    def _key(self, item: Item) -> Any:
        """Requests with equal keys can be joined: equal shapes but for the batch, unless ragged."""
        return frozenset(
            (name, array.shape[1:]) for name, array in item.arrays.items() if name not in self._ragged
        )

    def _alone(self, item: Item) -> pb_utils.InferenceResponse:
        try:
            return self._answers([item])[0]
        except TooFewRows as error:
            return _failed(str(error), pb_utils.TritonError.UNSUPPORTED)
        except UnicodeDecodeError:
            return _failed(
                "the model answered with a string that is not UTF-8: ONNX Runtime in Python cannot read it",
                pb_utils.TritonError.UNSUPPORTED,
            )
        except Exception as error:  # ONNX Runtime's exceptions have no base of their own
            return _failed(ort_text(error), pb_utils.TritonError.INTERNAL)

    def _answers(self, items: list[Item]) -> list[pb_utils.InferenceResponse]:
        names = items[0].outputs
        if len(items) > 1:
            names = list(dict.fromkeys(name for item in items for name in item.outputs))
        if not names:
            return [pb_utils.InferenceResponse([]) for _ in items]
        feed, begun = self._feed(items), perf_counter()
        outputs = dict(zip(names, self._session.run(names, feed, self._options), strict=True))
        if self.meter is not None:
            self.meter(sum(item.rows for item in items) or 1, perf_counter() - begun, outputs)
        for name, array in outputs.items():
            if array.ndim == 0:
                outputs[name] = array.reshape(self._scalar_dims[name])
        if not self._batching and not self._scattered:
            return [pb_utils.InferenceResponse([pb_utils.Tensor(name, outputs[name]) for name in names])]
        return self._split(items, outputs)

    def _feed(self, items: list[Item]) -> dict[str, Array]:
        feed = {}
        for name, first in items[0].arrays.items():
            if name in self._ragged:
                array = np.concatenate([item.arrays[name].reshape(-1) for item in items])
            elif len(items) > 1:
                array = np.concatenate([item.arrays[name] for item in items])
            else:
                array = first.reshape(-1)[:1].reshape(()) if name in self._scalars else first
            feed[name] = _text(array) if name in self._strings else array
        for targets, source, make, dtype in self._derived:
            shapes = [item.arrays[source].shape for item in items]
            for target in targets:
                feed[target] = make(shapes, dtype)
        return feed

    def _split(self, items: list[Item], outputs: dict[str, Array]) -> list[pb_utils.InferenceResponse]:
        responses = []
        start = 0
        parts = dict.fromkeys(self._scattered, 0)
        for item in items:
            end = start + item.rows
            tensors = []
            for name in item.outputs:
                array = outputs[name]
                if name in self._scattered:
                    source, dims = self._scattered[name]
                    shape = item.arrays[source].shape
                    array, parts[name] = scatter(array, parts[name], shape, dims, self._batching)
                elif self._batching:
                    array = _rows(name, array, start, end)
                tensors.append(pb_utils.Tensor(name, array))
            responses.append(pb_utils.InferenceResponse(tensors))
            start = end
        return responses


def _rows(name: str, array: Array, start: int, end: int) -> Array:
    """A request's rows of an output; what an output has beyond the batch is dropped, as in C++."""
    count = array.shape[0] if array.ndim else 0
    if count < end:
        raise TooFewRows(
            f"failed to split the output tensor '{name}' in responses: expected batch size of at least "
            f"{end} in model output, got {count}"
        )
    return array if start == 0 and end == count else array[start:end]


def _text(array: Array) -> Array:
    """Triton's bytes as what ONNX Runtime takes: str, or fixed-width bytes where they are not UTF-8."""
    try:
        decoded = [value.decode() for value in array.reshape(-1).tolist()]
    except UnicodeDecodeError:
        return array.astype(np.bytes_)
    return np.array(decoded, dtype=np.object_).reshape(array.shape)


def _failed(text: str, code: int) -> pb_utils.InferenceResponse:
    return pb_utils.InferenceResponse([], pb_utils.TritonError(text, code))
