"""What the clients give and raise: plain values, and one error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]

REFUSED = "refused"
"""The request was judged wrong (HTTP 4xx and the like)."""
BROKEN = "broken"
"""The server could not do it (HTTP 5xx and the like)."""
SILENT = "silent"
"""No answer: no connection, connection lost, or time over."""


class RequestFailed(Exception):
    """A request without the answer it asked for. ``kind`` is REFUSED, BROKEN or SILENT."""

    def __init__(self, kind: str, status: str, message: str) -> None:
        super().__init__(f"{status}: {message}" if status else message)
        self.kind = kind
        self.status = status
        self.message = message


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One input or output as the server describes it; the shape has the batch axis, if there is one."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """A model's public face."""

    name: str
    platform: str
    versions: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """A model's statistics since it was loaded: rows, executions, answers from the cache."""

    rows: int
    executions: int
    cached: int


@dataclass(frozen=True, kw_only=True)
class IndexEntry:
    """One model (version) of the server's repository, with its state and the reason of a failure."""

    name: str
    version: str
    state: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Body:
    """An encoded inference request, to be sent as often as wanted."""

    data: bytes
    headers: Mapping[str, str]


def read_metadata(document: Mapping[str, Any]) -> Metadata:
    """The protocol's model metadata, from either protocol (gRPC writes integers as strings)."""

    def tensors(key: str) -> tuple[Tensor, ...]:
        return tuple(
            Tensor(
                name=item["name"],
                datatype=item["datatype"],
                shape=tuple(int(dim) for dim in item.get("shape", ())),
            )
            for item in document.get(key, ())
        )

    return Metadata(
        name=document["name"],
        platform=document.get("platform", ""),
        versions=tuple(document.get("versions", ())),
        inputs=tensors("inputs"),
        outputs=tensors("outputs"),
    )
