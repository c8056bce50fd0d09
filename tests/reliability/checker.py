"""Judges a history: which requests were lost, mixed, wrong or too old. No process, no clock.

Each endpoint is a register that holds a version. Requests read it at one moment between sending and answer;
changes (promote, later apply) write it at one moment between their start and end. A change that was killed
may or may not have happened, until one that is acknowledged settles it.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

NONE = 0
"""The version of numbers that no version gives."""


class Outcome(Enum):
    """How a change ended."""

    ACKNOWLEDGED = "acknowledged"
    """Exit code 0: from now on this version, and no other."""
    REFUSED = "refused"
    """Another exit code: as before."""
    KILLED = "killed"
    """Nobody knows."""


class Kind(Enum):
    """What a request can suffer."""

    LOST = "lost"
    MIXED = "mixed"
    WRONG = "wrong"
    STALE = "another version than the acknowledged one"
    BACK = "an old answer after a new one"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request and what came of it."""

    endpoint: str
    sent: float
    answered: float
    rows: tuple[int, ...] = ()
    """Per row the version whose answer it is; NONE if of no version."""
    error: str = ""
    """What came instead of an answer."""
    silent: bool = False
    """No answer came at all: the connection broke, or time was up."""
    protocol: str = ""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One command that sets the version of an endpoint."""

    endpoint: str
    version: int
    started: float
    ended: float
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A time in which errors are no loss: the server was ended, or the process of a model was killed."""

    started: float
    ended: float
    server: bool
    """The server itself: silence is excused, too. Else the server must answer, at least with an error."""


@dataclass(frozen=True, kw_only=True)
class History:
    """All that happened."""

    first: Mapping[str, int]
    """The version that each endpoint serves in the beginning."""
    requests: Sequence[Request]
    changes: Sequence[Change] = ()
    outages: Sequence[Outage] = ()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A request that should not have gone so."""

    kind: Kind
    request: Request
    allowed: frozenset[int] = frozenset()


def check(history: History) -> list[Problem]:
    """Every problem, one for each request at most, in the order of sending."""
    registers = {name: _Register(history, name) for name in history.first}
    problems = []
    for request in sorted(history.requests, key=lambda request: request.sent):
        register = registers[request.endpoint]
        allowed = register.between(request.sent, request.answered)
        kind = _error(history.outages, request) if request.error else _answer(request, allowed, register)
        if kind:
            problems.append(Problem(kind=kind, request=request, allowed=allowed))
    return problems


def excused(history: History) -> int:
    """Errors in outages: neither answered nor lost."""
    return sum(1 for r in history.requests if r.error and _error(history.outages, r) is None)


def _error(outages: Sequence[Outage], request: Request) -> Kind | None:
    for outage in outages:
        overlaps = request.sent <= outage.ended and outage.started <= request.answered
        if overlaps and (outage.server or not request.silent):
            return None
    return Kind.LOST


def _answer(request: Request, allowed: frozenset[int], register: _Register) -> Kind | None:
    if not request.rows or NONE in request.rows:
        return Kind.WRONG
    if len({*request.rows}) > 1:
        return Kind.MIXED
    version = request.rows[0]
    if version not in allowed:
        return Kind.STALE
    return Kind.BACK if register.went_back(request.sent, version) else None


class _Register:
    """The versions that an endpoint may hold at each time."""

    def __init__(self, history: History, name: str) -> None:
        held = frozenset({history.first[name]})
        self._times = [float("-inf")]
        self._held = [held]
        self._switches: list[tuple[float, float, int]] = []
        answers = sorted(
            (request.answered, request.sent, request.rows[0])
            for request in history.requests
            if request.endpoint == name and request.rows
        )
        changes = [change for change in history.changes if change.endpoint == name]
        for change in sorted(changes, key=lambda change: change.started):
            before = held
            self._add(change.started, before | {change.version})
            if change.outcome is Outcome.ACKNOWLEDGED:
                held = frozenset({change.version})
            elif change.outcome is Outcome.KILLED:
                held = before | {change.version}
            self._add(change.ended, held)
            if change.outcome is Outcome.ACKNOWLEDGED and before - held and len(before) == 1:
                self._switches += _first(answers, change, *before)

    def between(self, start: float, end: float) -> frozenset[int]:
        """What a read at any moment from start to end may find."""
        first = bisect.bisect_right(self._times, start) - 1
        last = bisect.bisect_right(self._times, end) - 1
        return frozenset().union(*self._held[first : last + 1])

    def went_back(self, sent: float, version: int) -> bool:
        """Whether the version is the old one of a change whose new one had answered before."""
        return any(start < sent <= end and version == old for start, end, old in self._switches)

    def _add(self, time: float, held: frozenset[int]) -> None:
        self._times.append(time)
        self._held.append(held)


def _first(
    answers: Sequence[tuple[float, float, int]], change: Change, old: int
) -> Iterator[tuple[float, float, int]]:
    """When the new version first answered, if that was before the change ended."""
    for answered, sent, version in answers:
        if answered > change.ended:
            return
        if sent >= change.started and version == change.version:
            yield answered, change.ended, old
            return
