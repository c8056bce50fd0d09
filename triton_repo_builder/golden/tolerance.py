"""How far a served answer may be from the recorded one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from triton_repo_builder.golden.cases import Case, CaseTensor, Tolerance

FLOATS = ("FP16", "FP32", "FP64")
"""Only these carry float noise: a large integer must match exactly."""
ABSOLUTE = 1e-4
HALF = 5e-3
"""Of numbers with a mantissa of 10 bits: FP16, and TF32, in which ONNX Runtime multiplies FP32 on a GPU
since Ampere unless ``use_tf32`` is off (https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html).
"""
DEPENDENT = 0.1
"""Relative to the largest number: an answer that moves by more depends on its neighbour in the batch."""


def scale(tensor: CaseTensor) -> float:
    """The largest finite number of a recorded output, held above 0."""
    numbers = [abs(v) for v in tensor.data if isinstance(v, (int, float)) and np.isfinite(v)]
    return max([1e-6, *map(float, numbers)])


def tolerance(recorded: Sequence[Case], drift: float, noise: float = ABSOLUTE) -> Tolerance:
    """Float noise of another kernel or batch; twice the original's own drift if that is larger.

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
