"""Inputs to share a batch with a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from triton_repo_builder.repository import cases
from triton_repo_builder.run.client import RequestFailed
from triton_repo_builder.run.client.codec import Array
from triton_repo_builder.run.smoke.session import (
    GRPC,
    ServedEndpoint,
    SmokeSession,
    inputs_of,
)

WORDS = 300

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class Neighbours:
    """A long text, or other values of the same shapes; made once per shape."""

    def __init__(self, session: SmokeSession, endpoint: ServedEndpoint, file: cases.CaseFile) -> None:
        self._session = session
        self._endpoint = endpoint
        self._cases = file.cases
        self._long: dict[Shapes, Mapping[str, Array]] = {}

    def of(self, case: cases.Case) -> Mapping[str, Array]:
        """The neighbour's inputs; they can be stacked with the case's."""
        alike = [other for other in self._cases if shapes(other) == shapes(case)]
        if not self._endpoint.text:
            other = next((other for other in alike if other is not case), None)
            # Reversing keeps every value valid: a token, a pixel.
            return inputs_of(other) if other else {k: np.flip(v).copy() for k, v in inputs_of(case).items()}
        if shapes(case) not in self._long:
            self._long[shapes(case)] = self._longest(max(alike, key=lambda other: len(text(other))))
        return self._long[shapes(case)]

    def _longest(self, case: cases.Case) -> Mapping[str, Array]:
        """The case's inputs with a longer text; unchanged if the endpoint bounds its texts."""
        long = lengthened(inputs_of(case))
        try:
            self._session.ask(self._endpoint.name, GRPC, long)
        except RequestFailed:
            # If that was more than a refusal, the malformed requests (100 kB of text) will show it.
            return inputs_of(case)
        return long


def lengthened(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs with the longest text repeated until it has ``WORDS`` words."""
    texts = {name: b" ".join(v.reshape(-1).tolist()) for name, v in inputs.items() if v.dtype.kind == "O"}
    name = max(texts, key=lambda key: len(texts[key]))
    words = texts[name].split() or [b"word"]
    array = inputs[name].copy()
    array.fill(b" ".join((words * (WORDS // len(words) + 1))[:WORDS]))
    return {**inputs, name: array}


def text(case: cases.Case) -> str:
    """All texts of a case."""
    return " ".join(str(t) for tensor in case.inputs if tensor.datatype == "BYTES" for t in tensor.data)


def shapes(case: cases.Case) -> Shapes:
    """Cases that are equal in this can be stacked."""
    return (*sorted((tensor.name, tensor.shape) for tensor in case.inputs), (case.group, ()))


def stack(rows: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """One request of several rows."""
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
