"""Runs inside tritonserver: IMAGE, a JPEG or PNG file as bytes → the pixels that the model takes.

``image_size`` and ``trb_texts``, a second input as it is, are given if config.pbtxt has these outputs.

Copied byte for byte to ``<model>/1/model.py``, with ``image_pixels.py``, ``metrics.py``, ``spans.py`` and
``preprocess.json`` beside it. Needs numpy and Pillow, which lies in ``vendor/cp310`` and the like: one folder
per Python, for Pillow's shared libraries are made for one.
"""

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import triton_python_backend_utils as pb_utils

if TYPE_CHECKING:
    from triton_repo_builder.runtime.image_pixels import Pixels

HERE = Path(__file__).resolve().parent


class TritonPythonModel:
    """One instance: decodes and resizes the images of all requests of an execute."""

    def initialize(self, args: dict[str, str]) -> None:
        """Find Pillow and read the settings."""
        config = json.loads(args["model_config"])
        output = config["output"][0]
        self.output = output["name"]
        self.also = [other["name"] for other in config["output"][1:]]
        self.inputs = [entry["name"] for entry in config.get("input", [{"name": "IMAGE"}])]
        self.dtype = pb_utils.triton_string_to_numpy(output["data_type"])
        self.batched = config.get("max_batch_size", 0) > 0
        self.pixels = load(HERE)
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
        """Answer every request; one with an image that cannot be read fails alone."""
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
        """The pixels of one request's images, [rows, ...]."""
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        images = given["IMAGE"].reshape(-1)
        rows, sizes = [], []
        for number, data in enumerate(images):
            try:
                row, size = self.pixels.sized(data if isinstance(data, bytes) else str(data).encode())
                rows.append(row)
                sizes.append(size)
            except ValueError as problem:
                reason = getattr(problem, "reason", "other")
                return self.refuse(f"image {number} of input 'IMAGE' {problem}", reason)
        if not rows:
            return self.refuse("input 'IMAGE' has no image", "empty")
        shapes = sorted({row.shape for row in rows})
        if len(shapes) != 1:
            return self.refuse(
                f"the images of one request become {', '.join(map(str, shapes))}: send images of different "
                "shape in requests of their own",
                "shapes_differ",
            )
        self.files.count += len(rows)
        outputs = [pb_utils.Tensor(self.output, np.stack(rows).astype(self.dtype, copy=False))]
        if "image_size" in self.also:
            outputs.append(pb_utils.Tensor("image_size", np.array(sizes, dtype=np.int64)))
        if "trb_texts" in self.also:
            outputs.append(pb_utils.Tensor("trb_texts", given[self.inputs[-1]]))
        return pb_utils.InferenceResponse(output_tensors=outputs)

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


def load(folder: Path) -> "Pixels":
    """The preprocessing described in ``folder``, with the Pillow of this Python."""
    vendored = folder / "vendor" / f"cp{sys.version_info.major}{sys.version_info.minor}"
    if vendored.is_dir():
        sys.path.insert(0, str(vendored))
    sys.path.append(str(folder))
    try:
        module: Any = importlib.import_module("image_pixels")
    except ModuleNotFoundError as error:
        if error.name != "PIL":
            raise
        vendored_for = ", ".join(sorted(entry.name for entry in (folder / "vendor").glob("cp*"))) or "none"
        raise RuntimeError(
            f"no Pillow for Python {sys.version_info.major}.{sys.version_info.minor} in vendor/ "
            f"(there: {vendored_for}); build again with --pillow-wheel and the wheel for this Python"
        ) from None
    pixels: Pixels = module.Pixels(json.loads((folder / "preprocess.json").read_text(encoding="utf-8")))
    return pixels
