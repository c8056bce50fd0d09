"""Golden cases: answers of the original model, recorded by a path that shares nothing with serving.

What every kind of model needs for that: ONNX Runtime on the *untouched* file, and how far an answer may be
off. ``golden_text.py``, ``golden_images.py`` and ``golden_tensor.py`` record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.golden.cases import (
    Case,
    CaseFile,
    CaseTensor,
    Tolerance,
)
from triton_repo_builder.graph import external_data
from triton_repo_builder.read.signature import Dim
from triton_repo_builder.read.source import Source

MAPPED = 128 << 20
"""Bytes of weights from which on they are not loaded but mapped."""
FLOATS = ("FP16", "FP32", "FP64")
"""Only these carry float noise: a large integer is no reason to be lenient."""
ABSOLUTE = 1e-4
HALF = 5e-3
"""Of numbers with a mantissa of 10 bits: FP16, and TF32, in which ONNX Runtime multiplies FP32 on a GPU
since Ampere unless ``use_tf32`` is off (https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html).
"""
DEPENDENT = 0.1
"""Of the largest number: an answer that a neighbour moves by more depends on it."""
_FOLDER = "session.model_external_initializers_file_folder_path"
"""ONNX Runtime's onnxruntime_session_options_config_keys.h."""
_ONNXRUNTIME = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from .* failed:)?")


@dataclass(frozen=True)
class Original:
    """The original model in ONNX Runtime, and the noise of the device whose answers will be compared."""

    session: Any
    noise: float = ABSOLUTE

    def run(self, outputs: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """As ``onnxruntime.InferenceSession.run``."""
        values: list[Any] = self.session.run(outputs, feeds)
        return values


def session(source: Source, *, gpu: bool = False) -> Original:
    """ONNX Runtime on the user's own file, on the CPU; ``gpu``: what is compared will run on one.

    It would copy all weights, and take no single file over 2 GB. Of a large one it gets the graph only, told
    that the weights lie in the user's file at the places where they do: it maps them, as it does external
    data, and where it does not pack them anew it needs no memory of its own for them.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what fails is raised, too
    model: str | bytes = str(source.path)
    locations = tuple(file.location for file in source.signature.external)
    if external_data.leaves(source.path, locations):
        model = external_data.resolved(source.skeleton)
        options.add_session_config_entry(_FOLDER, str(external_data.ROOT))
    if source.signature.bytes > MAPPED:
        options.add_session_config_entry("session.disable_prepacking", "1")
        if not locations:
            # Where a link leads, as in the cache of Hugging Face: ONNX Runtime follows none out of a folder.
            real = source.path.resolve()
            model = source.skeleton.content(real.name)
            options.add_session_config_entry(_FOLDER, str(real.parent))
    try:
        opened = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise TrbError(
            Code.GOLDEN_FAILED,
            f"ONNX Runtime cannot load the model: {first_line(error)}",
            where=str(source.path),
            remedy="repair or re-export the model; --no-golden builds without proving its answers",
        ) from None
    return Original(opened, HALF if gpu else ABSOLUTE)


def output_shapes(runner: Original) -> dict[str, tuple[Dim, ...]]:
    """Output shapes as ONNX Runtime infers them, which is what Triton will compare with.

    ONNX Runtime gives no sizes both for a scalar and for an unknown shape: neither is listed.
    """
    return {output.name: tuple(output.shape) for output in runner.session.get_outputs() if output.shape}


def recorded_with(source: Source, *others: str) -> str:
    """What made the answers: the tools with their versions, and the file."""
    import onnxruntime

    tools = [*others, f"ONNX Runtime {onnxruntime.__version__} (CPU)"]
    return f"{' + '.join(tools)} on the original {source.path.name}"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Golden cases, and whether the model's rows turned out to be independent of each other."""

    file: CaseFile | None
    batchable: bool
    note: str = ""


def scale(tensor: CaseTensor) -> float:
    """The largest finite number of a recorded output, held above 0."""
    numbers = [abs(v) for v in tensor.data if isinstance(v, (int, float)) and np.isfinite(v)]
    return max([1e-6, *map(float, numbers)])


def tolerance(recorded: Sequence[Case], drift: float, noise: float = ABSOLUTE) -> Tolerance:
    """Float noise of another kernel or batch; twice the original's own drift where that is larger.

    Never more than a tenth of the largest number: zeros must not pass for small answers.
    """
    tensors = [tensor for case in recorded for tensor in case.outputs if tensor.datatype in FLOATS]
    largest = max((abs(v) for t in tensors for v in t.data if np.isfinite(v)), default=0.0)
    half = any(tensor.datatype == "FP16" for tensor in tensors)
    expected = (HALF if half else noise) * max(1.0, float(largest))
    alone = round_up(min(expected, DEPENDENT * float(largest)) if largest else expected)
    if 2 * drift <= alone:
        reason = "float noise between kernels and batch sizes"
        reason += ", with TF32 as a GPU multiplies" if noise > ABSOLUTE else ""
        return Tolerance(alone=alone, batched=alone, reason=reason)
    return Tolerance(
        alone=alone,
        batched=round_up(2 * drift),
        reason=f"the original model's own answers move by {drift:.2g} with their neighbours in a batch",
    )


def round_up(value: float) -> float:
    """To two significant digits, so that a rebuild writes the same bytes."""
    digits = 1 - int(np.floor(np.log10(value)))
    # 3e-4 * 10**5 is 30.000000000000004, which must not become 31.
    scaled = np.ceil(round(value * 10.0**digits, 6))
    return float(round(scaled / 10.0**digits, max(digits, 0)))


def first_line(error: BaseException) -> str:
    """What ONNX Runtime says, without where in its own code it says it."""
    text = _ONNXRUNTIME.sub("", str(error).strip())
    return (text.splitlines() or [type(error).__name__])[0][:300]
