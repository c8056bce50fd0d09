"""Values and the error of the clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from triton_repo_builder.base import files

JSON = {"Content-Type": "application/json"}
"""Sent with every JSON body: else the server parses it as a form, and one above 4 MB crashes the server."""
NOT_IN_JSON = frozenset({"FP16", "BF16"})
"""Datatypes that plain JSON cannot carry: the protocol has no notation for them."""

REFUSED = "refused"
"""The request was judged wrong (HTTP 4xx and the like)."""
BROKEN = "broken"
"""The server could not do it (HTTP 5xx and the like)."""
SILENT = "silent"
"""No answer: no connection, connection lost, or time over."""


class RequestFailed(Exception):
    """A request that was not answered as asked. ``kind`` is REFUSED, BROKEN or SILENT."""

    def __init__(self, kind: str, status: str, message: str) -> None:
        super().__init__(f"{status}: {message}" if status else message)
        self.kind = kind
        self.status = status
        self.message = message


class NoAnswer(RequestFailed, ConnectionError):
    """Nothing came back, so that nothing is known of the request: kind SILENT."""

    def __init__(self, message: str) -> None:
        super().__init__(SILENT, "", message)


LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Host names of this machine."""


@dataclass(frozen=True, kw_only=True)
class Urls:
    """Addresses of a server."""

    http: str
    """``http://host:port``, or ``https://``."""
    grpc: str
    """``host:port``; ``grpcs://`` before it means TLS."""
    metrics: str = ""
    """The metrics page; empty if unknown."""


@dataclass(frozen=True, kw_only=True)
class IndexEntry:
    """One version of a model in the server's repository."""

    name: str
    version: str
    state: str
    """Empty if the server never tried to load it."""
    reason: str

    @property
    def ready(self) -> bool:
        """Whether it answers requests."""
        return self.state == "READY"

    @property
    def failed(self) -> bool:
        """Whether its load failed; one that was unloaded on request has the reason ``unloaded``."""
        return self.state == "UNAVAILABLE" and self.reason not in ("", "unloaded")


def ready_versions(index: Iterable[IndexEntry]) -> dict[str, tuple[int, ...]]:
    """The versions of each model that answer requests, ascending; models without one are left out.

    Raises ``RequestFailed`` if a version is not a number.
    """
    versions: dict[str, list[int]] = {}
    with understood():
        for entry in index:
            if entry.ready:
                versions.setdefault(entry.name, []).append(int(entry.version or 0))
    return {name: tuple(sorted(numbers)) for name, numbers in versions.items()}


@dataclass(frozen=True, kw_only=True)
class Body:
    """An encoded inference request, to be sent as often as wanted."""

    data: bytes
    headers: Mapping[str, str]


@contextmanager
def understood() -> Iterator[None]:
    """Turn errors of code that reads an answer of another shape into one ``RequestFailed``."""
    try:
        yield
    except files.DAMAGED as error:
        message = f"the answer is not as the protocol has it: {type(error).__name__} {error}"
        raise RequestFailed(BROKEN, "200", message[:300]) from None


def document(data: bytes) -> Any:
    """The JSON of an answer."""
    try:
        # A model may answer with strings that are not UTF-8; Triton passes them on as they are.
        return files.load_json(data.decode("utf-8", "replace"), halves=True)
    except ValueError:
        raise RequestFailed(BROKEN, "200", f"the answer is not JSON: {data[:200]!r}") from None
