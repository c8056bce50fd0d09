"""Load models in parallel, and notice loads that never end: a dead stub hangs its load forever."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.serve.engine import Failure
from triton_repo_builder.run.serve.processes.stubs import ProcessLister, Stub

TICK = 0.04
"""Seconds between scans: short, because it also delays readiness after the last load."""
HANG_AFTER = 3.0
"""Seconds that mean a hang: the server detects a stub that died in ``initialize`` in 1 s, or never."""
COUNT_EVERY = 0.5


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Result of a set of loads."""

    answers: dict[str, str]
    """The server's answer by model: empty for success, else its error."""
    hung: tuple[Failure, ...] = ()
    unfinished: tuple[str, ...] = ()
    """Models still loading when time was up, or when the server ended."""
    ends: dict[str, str] = field(default_factory=dict)
    """Exit of the Python process by model; "" for a process that ended before it was seen."""

    @property
    def ok(self) -> bool:
        """Whether every model is loaded."""
        return not self.hung and not self.unfinished and not any(self.answers.values())


def load(
    base: str,
    names: tuple[str, ...],
    stubs: ProcessLister,
    *,
    timeout: float,
    alive: Callable[[], bool],
    progress: Callable[[str], None],
    total: int = 0,
    ignore: frozenset[int] = frozenset(),
) -> Loaded:
    """Load models in parallel; return when all have answered, one hangs, time is up or the server ended.

    ``ignore`` are stubs that were already dead.
    """
    answers: dict[str, str] = {}
    for name in names:
        threading.Thread(target=_load, args=(base, name, timeout + 5, answers), daemon=True).start()
    deadline = time.monotonic() + timeout
    counted = time.monotonic() - COUNT_EVERY / 2
    reported = ""
    dead: dict[int, float] = {}
    ends: dict[str, str] = {}
    while len(answers) < len(names):
        now = time.monotonic()
        time.sleep(TICK)
        present = stubs.scan()
        ended = [stub for stub in present if stub.dead and stub.pid not in ignore]
        dead = {stub.pid: dead.get(stub.pid, now) for stub in ended}
        for stub in ended:
            # Of two that ended differently before they were seen, nobody knows which was whose.
            same = stub.model or ends.get("", stub.end) == stub.end
            ends[stub.model] = stub.end if same else ""
        waiting = tuple(name for name in names if name not in answers)
        hung = [stub for stub in ended if now - dead[stub.pid] > HANG_AFTER]
        if waiting and hung:
            unseen = _without_process(base, present) or waiting
            failures = tuple(_failure(stub, unseen) for stub in hung)
            return Loaded(answers=dict(answers), hung=failures, ends=ends)
        if now > deadline or not alive():
            return Loaded(answers=dict(answers), unfinished=waiting, ends=ends)
        if now - counted > COUNT_EVERY:
            counted = now
            text = _count(base, total or len(names), waiting)
            if text and text != reported:
                progress(reported := text)
    return Loaded(answers=dict(answers), ends=ends)


def _load(base: str, name: str, timeout: float, answers: dict[str, str]) -> None:
    try:
        answers[name] = HttpClient(base, timeout).load(name)
    except TrbError as error:  # the server wants its admin key: nothing was loaded
        answers[name] = error.message
    except OSError as error:
        answers[name] = f"no answer from the server: {error}"


def _count(base: str, total: int, waiting: tuple[str, ...]) -> str:
    try:
        states = HttpClient(base, 1).states()
    except OSError:
        return ""
    ready = sum(state == "READY" for state, _ in states.values())
    rest = f", waiting for {', '.join(waiting)}" if waiting else ""
    return f"{ready} of {total} models ready{rest}"


def _without_process(base: str, stubs: Iterable[Stub]) -> tuple[str, ...]:
    """Models that are loading without a living process."""
    alive = {stub.model for stub in stubs if not stub.dead}
    with contextlib.suppress(OSError):
        return tuple(
            name
            for name, (state, _) in HttpClient(base, 2).states().items()
            if state == "LOADING" and name not in alive
        )
    return ()


def _failure(stub: Stub, unseen: tuple[str, ...]) -> Failure:
    # A stub that died before it was seen is attributed to the models that load without one.
    model = stub.model or ", ".join(unseen)
    return Failure(model=model, cause=f"its Python process ended while starting ({stub.end})")
