"""Runs inside tritonserver: AUDIO, a sound file as bytes → the samples that the model takes.

Copied byte for byte to ``<model>/1/model.py``, with ``audio_samples.py``, ``metrics.py``, ``spans.py`` and
``preprocess.json`` beside it. Needs numpy, and libsndfile in ``vendor/``.
"""

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

HERE = Path(__file__).resolve().parent


class TritonPythonModel:
    """One instance: decodes and resamples the files of all requests of an execute."""

    def initialize(self, args: dict[str, str]) -> None:
        """Find libsndfile and read the settings."""
        config = json.loads(args["model_config"])
        output = config["output"][0]
        self.output = output["name"]
        self.dtype = pb_utils.triton_string_to_numpy(output["data_type"])
        sys.path.append(str(HERE))
        module: Any = importlib.import_module("audio_samples")
        settings = json.loads((HERE / "preprocess.json").read_text(encoding="utf-8"))
        self.samples = module.Samples(settings, HERE / "vendor" / "libsndfile_x86_64.so")
        metrics = beside("metrics")
        self.files = metrics.Files(metrics.Metrics(args))
        self.sample = (
            beside("answer_metrics").AnswerSample(metrics.Metrics, args)
            if "answers_model" in config.get("parameters", {})
            else None
        )
        spans = beside("spans")
        self.steps, self.busy = spans.Steps(args), spans.Busy()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer every request; one with a file that cannot be read fails alone."""
        with self.busy:
            return self.respond_all(requests)

    def respond_all(self, requests: list[Any]) -> list[Any]:
        """The responses, in the order of the requests."""
        start, end = perf_counter(), self.steps.begin(requests)
        responses = [self.respond(request) for request in requests]
        end("decode")
        self.files.execution(perf_counter() - start)
        if self.sample is not None:
            self.sample.offer(responses)
        return responses

    def is_ready(self) -> bool:
        """Answer the server's readiness check, which Triton 26.03 and later ask: false while stuck."""
        return not self.busy.stuck

    def finalize(self) -> None:
        """Deliver the last numbers and spans."""
        if self.sample is not None:
            self.sample.close()
        self.files.close()
        self.steps.close()

    def respond(self, request: Any) -> Any:
        """The samples of one request's files, [rows, samples]."""
        rows: list[Any] = []
        for number, data in enumerate(request.inputs()[0].as_numpy().reshape(-1)):
            try:
                rows.append(self.samples(data if isinstance(data, bytes) else str(data).encode()))
            except ValueError as problem:
                reason = getattr(problem, "reason", "other")
                return self.refuse(f"file {number} of input 'AUDIO' {problem}", reason)
        lengths = sorted({len(row) for row in rows})
        if len(lengths) != 1:
            return self.refuse(
                f"the files of one request become {', '.join(map(str, lengths)) or 'no'} samples: send files "
                "of different length in requests of their own",
                "shapes_differ" if rows else "empty",
            )
        self.files.count += len(rows)
        values = np.stack(rows).astype(self.dtype, copy=False)
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor(self.output, values)])

    def refuse(self, message: str, reason: str) -> Any:
        """The answer to a request that is wrong."""
        self.files.refused(reason)
        error = pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG)
        return pb_utils.InferenceResponse(error=error)


def beside(name: str) -> Any:
    """The module of that name in this folder."""
    spec = importlib.util.spec_from_file_location(f"trb_{name}", HERE / f"{name}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"no {name}.py in {HERE}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
