"""Runs inside tritonserver: AUDIO, a sound file as bytes → the samples that the model takes.

Copied byte for byte to ``<model>/1/model.py``, with ``audio_samples.py``, ``spans.py`` and
``preprocess.json`` beside it. Needs numpy, and libsndfile in ``vendor/``.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

HERE = Path(__file__).resolve().parent


class TritonPythonModel:
    """One instance: decodes and resamples the files of all requests of an execute."""

    def initialize(self, args: dict[str, str]) -> None:
        """Find libsndfile and read the settings."""
        output = json.loads(args["model_config"])["output"][0]
        self.output = output["name"]
        self.dtype = pb_utils.triton_string_to_numpy(output["data_type"])
        sys.path.append(str(HERE))
        module: Any = importlib.import_module("audio_samples")
        self.steps = importlib.import_module("spans").Steps(args)
        settings = json.loads((HERE / "preprocess.json").read_text(encoding="utf-8"))
        self.samples = module.Samples(settings, HERE / "vendor" / "libsndfile_x86_64.so")

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer every request; one with a file that cannot be read fails alone."""
        end = self.steps.begin(requests)
        responses = [self.respond(request) for request in requests]
        end("decode")
        return responses

    def finalize(self) -> None:
        """Send the spans that wait."""
        self.steps.close()

    def respond(self, request: Any) -> Any:
        """The samples of one request's files, [rows, samples]."""
        rows: list[Any] = []
        for number, data in enumerate(request.inputs()[0].as_numpy().reshape(-1)):
            try:
                rows.append(self.samples(data if isinstance(data, bytes) else str(data).encode()))
            except ValueError as problem:
                return refused(f"file {number} of input 'AUDIO' {problem}")
        lengths = sorted({len(row) for row in rows})
        if len(lengths) != 1:
            return refused(
                f"the files of one request become {', '.join(map(str, lengths)) or 'no'} samples: send files "
                "of different length in requests of their own"
            )
        values = np.stack(rows).astype(self.dtype, copy=False)
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor(self.output, values)])


def refused(message: str) -> Any:
    """The answer to a request that is wrong."""
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG))
