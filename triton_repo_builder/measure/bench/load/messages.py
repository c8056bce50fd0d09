"""Messages between the run and its client processes."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

OK = 0
"""Kind of an answered request; failures are numbered from 1, in ``Chunk.kinds``."""
OVERRUN = "overrun"
TIMEOUT = "timeout"
NO_CONNECTION = "no connection"


@dataclass(frozen=True, kw_only=True)
class WorkerLoad:
    """One process' share of a level."""

    protocol: str
    address: str
    """``host:port`` for gRPC, ``http(s)://host:port/path`` for HTTP."""
    bodies: tuple[bytes, ...]
    """Encoded requests, sent in turn."""
    headers: tuple[Mapping[str, str], ...]
    """HTTP: the headers of each body."""
    first: int
    """Body to begin with, so that processes do not send the same text at the same time."""
    clients: int | None
    rate: float | None
    in_flight: int
    timeout: float
    seed: int
    schedule: tuple[tuple[float, int], ...] = ()
    """Open loop: seconds after the start and the body of each request, instead of chance arrivals."""


@dataclass(frozen=True, kw_only=True)
class Begin:
    """Start at this reading of the monotonic clock, which all processes of a machine share."""

    at: float


@dataclass(frozen=True, kw_only=True)
class Take:
    """Hand over what was recorded since the last time; with ``stop``, finish first."""

    stop: bool = False


@dataclass(frozen=True, kw_only=True)
class Ready:
    """Connected, as far as possible."""


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Requests that ended: when they were due, when they ended, how."""

    due: array[float]
    ended: array[float]
    kind: array[int]
    kinds: tuple[str, ...]
    """Names of the kinds, by number; the first is success."""
    examples: Mapping[str, str]
    lag: array[float]
    """How late the event loop ran, in seconds, looked at every 20 ms."""
    cpu: float
    """Seconds of CPU of this process since it started."""
    sent: int
    """Requests of the level so far, also those in flight."""
