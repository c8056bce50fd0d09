"""An answer beside the recorded one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from triton_repo_builder.repository import cases
from triton_repo_builder.repository.interface import Tensor
from triton_repo_builder.run.client.codec import Array, wire_type
from triton_repo_builder.run.smoke.attempt import Mismatch, Seen


def same(case: cases.Case, answer: Mapping[str, Array], allowed: float) -> Seen:
    """Every recorded output within ``allowed``; raises ``Mismatch`` naming the worst element."""
    worst = 0.0
    by_key = {tensor.at for tensor in case.outputs if tensor.at}
    for expected in case.outputs:
        actual = answer.get(expected.name)
        if actual is None:
            raise Mismatch(f"output {expected.name}: expected, but the answer has only {', '.join(answer)}")
        datatype = wire_type(actual)
        if datatype != expected.datatype:
            raise Mismatch(f"output {expected.name}: expected {expected.datatype}, got {datatype}")
        if expected.name in by_key:
            continue
        if not expected.at and tuple(actual.shape) != expected.shape:
            raise Mismatch(
                f"output {expected.name}: expected shape {list(expected.shape)}, got {list(actual.shape)}"
            )
        difference = cases.among(case.outputs, expected, answer)
        if not difference <= allowed:
            text = f"output {expected.name}" + ("" if expected.at else _where(expected, actual))
            if np.isfinite(difference):
                text += f" (difference {difference:.3g}, allowed {allowed:.3g})"
            raise Mismatch(text, difference, allowed)
        worst = max(worst, difference)
    return Seen(difference=worst, allowed=allowed)


def _where(expected: cases.CaseTensor, actual: Array) -> str:
    """``[0, 3]: expected 0.5, got 0.7`` for the element that is furthest off."""
    positions = range(actual.size) if expected.indices is None else expected.indices
    flat = actual.reshape(-1)
    worst, most = 0, -1.0
    for number, (position, value) in enumerate(zip(positions, expected.data, strict=False)):
        off = _off(value, flat[position])
        if off > most:
            worst, most = number, off
    position = positions[worst]
    index = [int(i) for i in np.unravel_index(position, actual.shape)] if actual.shape else []
    return f"{index}: expected {_show(expected.data[worst])}, got {_show(flat[position])}"


def _off(expected: Any, actual: Any) -> float:
    if isinstance(actual, bytes):
        return 0.0 if actual.decode("utf-8", "replace") == expected else float("inf")
    difference = abs(float(expected) - float(actual))
    equal = float(expected) == float(actual) or (np.isnan(float(expected)) and np.isnan(float(actual)))
    return 0.0 if equal else difference if np.isfinite(difference) else float("inf")


def _show(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if isinstance(text, str):
        return repr(text if len(text) <= 80 else text[:77] + "…")
    return f"{float(text):.7g}"


def row(
    answer: Mapping[str, Array], index: int, rows: int, case: cases.Case, outputs: tuple[Tensor, ...]
) -> dict[str, Array]:
    """One row of a batch's answer, without the filling that longer rows added to its end.

    A per-token output of a batch is as long as its longest text, and the case's own part comes first; only
    axes that the metadata calls variable are cut. Outputs that list entries with their keys stay whole.
    """
    result = {}
    listing = {name for tensor in case.outputs if tensor.at for name in (tensor.name, tensor.at)}
    recorded = {tensor.name: tensor.shape for tensor in case.outputs}
    stated = {tensor.name: tensor.shape for tensor in outputs}
    for name, array in answer.items():
        if array.ndim == 0 or array.shape[0] != rows:
            raise Mismatch(f"output {name}: expected {rows} rows, got shape {list(array.shape)}")
        part = array[index : index + 1]
        recorded_shape, stated_shape = recorded.get(name, ()), stated.get(name, ())
        if len(recorded_shape) == len(stated_shape) == part.ndim and name not in listing:
            part = part[
                tuple(slice(recorded_shape[i] if stated_shape[i] == -1 else None) for i in range(part.ndim))
            ]
        result[name] = part
    return result
