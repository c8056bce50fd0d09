"""How far a served answer may be from the recorded one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from triton_repo_builder.repository.cases import Case, Tolerance

FLOATS = ("FP16", "FP32", "FP64")
"""Only these carry float noise: a large integer must match exactly."""
ABSOLUTE = 1e-4
HALF = 5e-3
"""Relative noise of a mantissa of 10 bits: FP16, and TF32, in which ONNX Runtime multiplies FP32 on a GPU
since Ampere unless ``use_tf32`` is off (https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html).
"""
TOGETHER = 1e-5
"""FP32 beside other rows on one machine, where a last digit moves if anything: a tenth of what kernels of two
machines may differ, so that a model which mixes rows a little does not pass for noise."""
ROUNDED = 0.25
"""The largest tolerance of a model of 8 bits, as a share of the largest number."""
MOST = 0.1
"""The largest tolerance, as a share of the largest number."""


def tolerance(recorded: Sequence[Case], noise: float = ABSOLUTE, rounding: float = 0.0) -> Tolerance:
    """Float noise of another kernel or batch, alone and in a batch: rows that move more are not joined.

    Never more than a tenth of the largest number: zeros must not pass for small answers. ``rounding`` is how
    far 8 bits move the answers (``ModelSignature.rounding``), in proportion to the largest number: noise that
    tips an activation over to the next step moves them as far, so other kernels may. A batch must not.
    """
    tensors = [tensor for case in recorded for tensor in case.outputs if tensor.datatype in FLOATS]
    largest = max((abs(v) for t in tensors for v in t.data if np.isfinite(v)), default=0.0)
    half = any(tensor.datatype == "FP16" for tensor in tensors)
    expected = (HALF if half else noise) * max(1.0, float(largest))
    allowed = round_up(min(expected, MOST * float(largest)) if largest else expected)
    reason = "float noise between kernels and batch sizes"
    reason += ", with TF32 as a GPU multiplies" if noise > ABSOLUTE else ""
    if rounding <= 0 or not largest:
        return Tolerance(alone=allowed, batched=allowed, reason=reason)
    steps = round_up(min(rounding * max(1.0, float(largest)), ROUNDED * float(largest)))
    reason = f"8-bit steps alone, where another kernel rounds otherwise; {reason} in a batch"
    return Tolerance(alone=max(steps, allowed), batched=allowed, reason=reason)


def together(recorded: Sequence[Case], noise: float, rounding: float = 0.0) -> float:
    """How far an answer may move beside other rows, if they are to run together.

    ``noise`` as for ``tolerance``; 8 bits (``rounding``) move by whole steps, if at all.
    """
    return tolerance(recorded, TOGETHER if noise == ABSOLUTE and not rounding else noise).batched


def at_least(tolerance: Tolerance, share: float) -> Tolerance:
    """For answers of many decisions, such as the pixels of a label map: ``share`` of them may differ."""
    if share <= tolerance.alone:
        return tolerance
    allowed = round_up(min(share, MOST))
    reason = f"{tolerance.reason}, which decides some pixels"
    return Tolerance(alone=allowed, batched=max(allowed, tolerance.batched), reason=reason)


def round_up(value: float) -> float:
    """To two significant digits, so that a rebuild writes the same bytes."""
    digits = 1 - int(np.floor(np.log10(value)))
    # 3e-4 * 10**5 is 30.000000000000004, which must not become 31.
    scaled = np.ceil(round(value * 10.0**digits, 6))
    return float(round(scaled / 10.0**digits, max(digits, 0)))
