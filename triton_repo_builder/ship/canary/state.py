"""The state of a canary, beside its routes file: its step, what was seen, and what an operator asks of it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import DAMAGED
from triton_repo_builder.ship.canary.sample import Side, side_of_json

SCHEMA = 1
RUNNING, PROMOTED, BACK, ABORTED = "running", "promoted", "taken back", "aborted"
PROMOTE, ABORT = "promote", "abort"
"""Requests of an operator to a canary that another process runs."""


@dataclass(frozen=True, kw_only=True)
class State:
    """Everything that a canary needs to go on."""

    name: str
    """Name of the deployment."""
    deploy: str
    """Path of deploy.toml."""
    stable: str
    canary: str
    """HTTP addresses as trb reaches the servers."""
    traefik: str
    routes: str = ""
    """The routes file with all traffic at the stable server: going back needs no other."""
    steps: tuple[int, ...]
    step: int = -1
    """Index of the step; -1 while golden cases are compared before any traffic."""
    weight: int = 0
    """Percent that the canary gets."""
    began: float = 0.0
    """Unix time of the start."""
    step_began: float = 0.0
    result: str = RUNNING
    reason: str = ""
    """Why it was taken back, in words."""
    baseline: Side | None = None
    """The stable side while it had most of the traffic: the last step has no other to compare with."""
    history: tuple[dict[str, Any], ...] = ()
    """A report of each step that has ended."""
    latest: dict[str, Any] | None = None
    """The latest look at the step that runs."""
    back_s: float | None = None
    """Seconds from the step's start until all traffic was at the stable server again."""
    first_bad_s: float | None = None
    """Seconds from the first bad request that was seen until then."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        baseline = self.baseline.to_json() if self.baseline else None
        return {
            "schema": SCHEMA,
            **values,
            "steps": list(self.steps),
            "history": list(self.history),
            "baseline": baseline,
        }


@dataclass(frozen=True, kw_only=True)
class StateFiles:
    """The files beside a routes file."""

    routes: Path
    state: Path = field(init=False)
    ask: Path = field(init=False)
    lock: Path = field(init=False)

    def __post_init__(self) -> None:
        for name in ("state", "ask", "lock"):
            ending = "canary.json" if name == "state" else f"canary.{name}"
            object.__setattr__(self, name, self.routes.with_name(f"{self.routes.name}.{ending}"))

    def load(self) -> State | None:
        """The state; None if there is none. Raises ``TrbError`` REPOSITORY_UNREADABLE, NOT_FOUND."""
        try:
            document = files.load_json(files.read_text(self.state, limit=files.LARGEST_DOCUMENT))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise files.unreadable(self.state, error) from None
        except DAMAGED:
            raise self._damaged() from None
        try:
            if document["schema"] != SCHEMA:
                raise ValueError
            kept = {each.name: document[each.name] for each in fields(State)}
            baseline = document["baseline"]
            return State(
                **{
                    **kept,
                    "steps": tuple(map(int, document["steps"])),
                    "history": tuple(document["history"]),
                    "baseline": side_of_json(baseline) if baseline else None,
                }
            )
        except DAMAGED:
            raise self._damaged() from None

    def _damaged(self) -> TrbError:
        return TrbError(
            Code.REPOSITORY_UNREADABLE,
            "is not the state of a canary, or of another version of trb",
            where=str(self.state),
            remedy="trb canary abort sends all traffic to the stable server and removes it",
        )

    def save(self, state: State) -> None:
        """Write the state, whole or not at all. Raises ``TrbError``."""
        files.write(self.state, json.dumps(state.to_json(), indent=1).encode())

    def forget(self) -> None:
        """Remove the state and what was asked."""
        for path in (self.state, self.ask):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def request(self, command: str) -> None:
        """Ask the process that runs the canary for PROMOTE or ABORT."""
        files.write(self.ask, command.encode())

    def asked(self) -> str:
        """The request of an operator, once; empty if there is none."""
        try:
            command = files.read_text(self.ask, limit=100).strip()
            self.ask.unlink()
        except OSError:
            return ""
        return command if command in (PROMOTE, ABORT) else ""

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Be the one process that drives this file; False if another one is. It ends with the process."""
        try:
            import fcntl
        except ModuleNotFoundError:  # not on this platform
            yield True
            return
        try:
            held = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise files.explain(error, self.lock.parent) from error
        try:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            except OSError:  # a file system without locks
                pass
            yield True
        finally:
            os.close(held)

    def running(self) -> bool:
        """Whether a process drives this file now."""
        try:
            import fcntl

            held = os.open(self.lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (ModuleNotFoundError, OSError):
            return False
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
        finally:
            os.close(held)
        return False

    def busy(self) -> TrbError:
        """The error for a second process."""
        return TrbError(
            Code.REPOSITORY_BUSY,
            "another trb canary drives this file; nothing was changed",
            where=str(self.routes),
            remedy="watch it with trb canary status, or end it with trb canary abort",
        )
