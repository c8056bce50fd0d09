"""Cases for endpoints without golden ones: generated inputs, and the server's first answers as the expected
ones.

That shows whether answers are repeatable and the same alone and in a batch, not whether they are right.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from triton_repo_builder.repository import cases
from triton_repo_builder.repository.interface import Endpoint
from triton_repo_builder.run.client import RequestFailed, sample_inputs
from triton_repo_builder.run.client.codec import Array, wire_type
from triton_repo_builder.run.client.grpc import GrpcClient


def record(grpc: GrpcClient, endpoint: Endpoint) -> tuple[cases.CaseFile | None, Mapping[str, Array], str]:
    """Cases from the server's first answers, the first case's inputs, and why there are none."""
    unknown = sample_inputs.unknown_type(endpoint.inputs + endpoint.outputs)
    if unknown:
        return None, {}, f"smoke has no numbers of type {unknown.datatype} ({unknown.name})"
    inputs: Mapping[str, Array] = {}
    reason = "the model has no inputs"
    ways = (False, True) if sample_inputs.takes_files(endpoint.inputs) else (False,)
    for files, size in itertools.product(ways, sample_inputs.OPEN_AXES) if endpoint.inputs else ():
        try:
            recorded = []
            for number in range(len(sample_inputs.TEXTS)):
                inputs = sample_inputs.request(
                    endpoint.inputs, number, batched=bool(endpoint.max_batch_size), size=size, files=files
                )
                recorded.append(_case(f"made-{number + 1}", inputs, grpc.infer(endpoint.name, inputs)))
        except sample_inputs.TooLarge as error:
            return None, inputs, reason if inputs else f"smoke makes no such inputs ({error})"
        except RequestFailed as error:
            reason = f"the server does not answer inputs made from its metadata ({error})"
            continue
        first = {tensor.name: tensor.array() for tensor in recorded[0].inputs}
        file = cases.CaseFile(
            endpoint=endpoint.name,
            recorded_with="the server itself",
            tolerance=_tolerance(recorded),
            cases=tuple(recorded),
        )
        return file, first, ""
    return None, inputs, reason


def _case(name: str, inputs: Mapping[str, Array], answer: Mapping[str, Array]) -> cases.Case:
    return cases.Case(
        name=name,
        inputs=tuple(_tensor(name, array) for name, array in inputs.items()),
        outputs=tuple(cases.record(name, wire_type(array), array) for name, array in answer.items()),
    )


def _tensor(name: str, array: Array) -> cases.CaseTensor:
    flat = [_readable(value) for value in array.reshape(-1).tolist()]
    return cases.CaseTensor(name=name, datatype=wire_type(array), shape=tuple(array.shape), data=tuple(flat))


def _readable(value: Any) -> Any:
    """Text as text; the bytes of a file as they are."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def _tolerance(recorded: list[cases.Case]) -> cases.Tolerance:
    """Room for another order of summation, in proportion to the numbers seen."""
    numbers = [
        abs(float(value))
        for case in recorded
        for tensor in case.outputs
        if tensor.datatype != "BYTES"
        for value in tensor.data
        if np.isfinite(float(value))
    ]
    scale = max(1.0, max(numbers, default=1.0))
    half = any(tensor.datatype in ("FP16", "BF16") for case in recorded for tensor in case.outputs)
    return cases.Tolerance(
        alone=scale * (1e-2 if half else 1e-5),
        batched=scale * (1e-2 if half else 1e-3),
        reason="made inputs: in proportion to the largest number answered",
    )
