"""Run one check: time it, and turn its errors into a result."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from triton_repo_builder.run.client import RequestFailed
from triton_repo_builder.run.smoke.report import Check, Status


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Observation of a check that passed."""

    detail: str = ""
    difference: float | None = None
    allowed: float | None = None


class Mismatch(Exception):
    """A check that does not hold: the expected and the actual result."""

    def __init__(self, text: str, difference: float | None = None, allowed: float | None = None) -> None:
        super().__init__(text)
        self.difference = difference
        self.allowed = allowed


class LeftOut(Exception):
    """A check that this server does not take: the reason."""


def not_done(group: str, name: str, endpoint: str, why: str, status: Status = Status.UNVERIFIED) -> Check:
    """The result of a check that could not be done, or that does not apply."""
    return Check(group=group, name=name, endpoint=endpoint, status=status, detail=why)


def attempt(
    group: str, name: str, action: Callable[[], Seen], *, endpoint: str = "", protocol: str = ""
) -> Check:
    """Run ``action``: it passes by returning, and fails by ``Mismatch`` or ``RequestFailed``.

    ``LeftOut`` makes it a skipped check.
    """
    start = time.perf_counter()
    status, seen = Status.PASSED, Seen()
    try:
        seen = action()
    except Mismatch as problem:
        status = Status.FAILED
        seen = Seen(detail=str(problem), difference=problem.difference, allowed=problem.allowed)
    except LeftOut as reason:
        status, seen = Status.SKIPPED, Seen(detail=str(reason))
    except RequestFailed as problem:
        status, seen = Status.FAILED, Seen(detail=f"expected an answer, got {problem}")
    return Check(
        group=group,
        name=name,
        endpoint=endpoint,
        protocol=protocol,
        status=status,
        detail=seen.detail,
        difference=seen.difference,
        allowed=seen.allowed,
        milliseconds=(time.perf_counter() - start) * 1000,
    )
