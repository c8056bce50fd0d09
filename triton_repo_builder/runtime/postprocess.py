"""Runs inside tritonserver: builds the answer from the model's output and the text itself.

Copied byte for byte to ``<model>/1/model.py``; the task's own part, ``answer.py`` beside it, has a class
``Answer`` whose ``answer(row)`` gives each output of one row. The inputs' last axes may be longer than the
row needs (the longest row of a batch decides), so ``answer`` relies on ``trb_spans`` or ``trb_tokens``.
Numbers for the metrics page: ``metrics.py`` beside it, and ``watch(metrics)`` of the task's part, which gives
a function of the answers to one request. Needs only numpy, and ``spans.py`` there.
"""

import importlib.util
import json
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

HERE = Path(__file__).resolve().parent


class TritonPythonModel:
    """One instance: row by row, each request with an answer or an error of its own."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the task's part and give it the parameters of config.pbtxt."""
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config.get("parameters", {}).items()}
        batch_axes = 0 if config["max_batch_size"] else 1  # without batching the dims state that axis, too
        self.outputs = [
            (
                output["name"],
                pb_utils.triton_string_to_numpy(output["data_type"]),
                output["dims"][batch_axes:],
            )
            for output in config["output"]
        ]
        module = beside("answer")
        self.task = module.Answer(parameters, HERE)
        self.metrics = beside("metrics").Metrics(args)
        self.metrics.reference()
        self.rows, self.phase = self.metrics.rows(), self.metrics.phase("answer")
        spans = beside("spans")
        self.steps, self.busy = spans.Steps(args), spans.Busy()
        self.watch = module.watch(self.metrics) if hasattr(module, "watch") else None

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer every request; one that cannot be answered fails alone."""
        with self.busy:
            return self.respond_all(requests)

    def respond_all(self, requests: list[Any]) -> list[Any]:
        """The responses, in the order of the requests."""
        start, self.answered, end = perf_counter(), 0, self.steps.begin(requests)
        responses = [self.respond(request) for request in requests]
        end("answer")
        self.phase(perf_counter() - start)
        if self.answered:
            self.rows(self.answered)
        return responses

    def is_ready(self) -> bool:
        """Answer the server's readiness check, which Triton 26.03 and later ask: false while stuck."""
        return not self.busy.stuck

    def finalize(self) -> None:
        """Deliver the last numbers and spans."""
        self.metrics.close()
        self.steps.close()

    def respond(self, request: Any) -> Any:
        """All rows of one request; an output of variable size is as long as the row that needs most."""
        tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        count = min((len(array) for array in tensors.values()), default=0)
        try:
            rows = [
                self.task.answer({name: array[row] for name, array in tensors.items()})
                for row in range(count)
            ]
        except ValueError as error:
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
            )
        self.answered += count
        if self.watch is not None:
            self.watch(rows)
        outputs = [
            pb_utils.Tensor(name, stacked([row[name] for row in rows], dtype, dims))
            for name, dtype, dims in self.outputs
        ]
        return pb_utils.InferenceResponse(output_tensors=outputs)


def beside(name: str) -> Any:
    """The module of that name in this folder."""
    spec = importlib.util.spec_from_file_location(f"trb_{name}", HERE / f"{name}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"no {name}.py in {HERE}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stacked(rows: list[Any], dtype: Any, dims: list[int]) -> Any:
    """Rows of one output in one array, the shorter ones filled up with zeros or empty strings.

    Each row has the sizes of ``dims``, of which only the first may vary.
    """
    text = dtype is np.object_
    sizes = [int(dim) for dim in dims]
    if sizes[0] < 0:
        sizes[0] = max((len(row) for row in rows), default=0)
    values = np.full((len(rows), *sizes), b"" if text else 0, dtype=dtype)
    for number, row in enumerate(rows):
        if len(row):
            # By way of an array of objects: numpy's own byte strings lose trailing NULs.
            values[number, : len(row)] = np.array(row, dtype=dtype)
    return values
