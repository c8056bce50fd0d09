"""Servers that Triton's own fault ends: a test that fails of it runs once more with new ones, and is counted.

The fault is server issue 8882: on busy cores the Python backend aborts the whole server. Nothing else counts:
no other signal, no abort without these words in the server's log, and no second end in the same test.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from triton_repo_builder.run.serve.embedded.handle import EmbeddedServer

FAULT = re.compile(r"boost::interprocess::lock_exception|what\(\): .*Stub process \S+ is not healthy")
ABORTED = "killed by SIGABRT"
"""Words of ``trb`` for a server that ended so; its last errors follow."""
PROPERTY = "servers_started_again"
UNIT = Path(__file__).parents[1] / "unit"
MOST = 5
"""Tests of a process that run again at most: more are no accident."""
PATIENCE = 30.0
"""Seconds in which a server with these words in its log ends: it still writes a trace of the crash."""


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A server: its log, and whether it was aborted (None: it still runs)."""

    log: Callable[[], str]
    aborted: Callable[[], bool | None]

    def is_ended(self, *, wait: bool) -> bool:
        """Whether the fault has ended the server. With ``wait``, also one that is about to end."""
        with suppress(OSError):  # the log of a test that is long over
            if (not wait and not self.aborted()) or not FAULT.search(self.log()):
                return False
            deadline = time.monotonic() + PATIENCE
            while (aborted := self.aborted()) is None and time.monotonic() < deadline:
                time.sleep(0.1)
            return aborted is True
        return False


class Faults:
    """The servers of this process, and those that the fault has ended."""

    def __init__(self) -> None:
        self.ended = 0
        """Servers that the fault has ended, while nothing has started them again."""
        self.started_again = 0
        self.repeated = 0
        """Tests that ran again."""
        self._watched: dict[int, Watched] = {}

    def watch(self, server: object, log: Callable[[], str], aborted: Callable[[], bool | None]) -> None:
        """Look at this server after each test."""
        self._watched[id(server)] = Watched(log=log, aborted=aborted)

    def forget(self, server: object) -> None:
        """Look at a server for the last time."""
        self.ended += self._is_ended(server)

    def starts_again(self, server: object) -> bool:
        """Whether the fault has ended this server, which the caller then starts again."""
        ended = self._is_ended(server)
        self.started_again += ended
        return ended

    def look(self, *, wait: bool) -> None:
        """Look at every server."""
        for key, watched in list(self._watched.items()):
            if watched.is_ended(wait=wait):
                del self._watched[key]
                self.ended += 1

    def said(self, text: str) -> None:
        """Look at what a ``trb`` in another process said of its server."""
        self.ended += Watched(log=lambda: text, aborted=lambda: ABORTED in text).is_ended(wait=False)

    def _is_ended(self, server: object) -> bool:
        watched = self._watched.pop(id(server), None)
        return watched is not None and watched.is_ended(wait=True)


faults = Faults()


def _watch_embedded_servers() -> None:
    """Servers of this process: those that tests start, and those of commands that run in it."""
    begin, stop = EmbeddedServer.__init__, EmbeddedServer.stop

    def watched(self: EmbeddedServer, *arguments: Any) -> None:
        begin(self, *arguments)
        faults.watch(self, self.output, lambda: _is(128 + signal.SIGABRT, self._supervisor.poll()))

    def stopped(self: EmbeddedServer, *, hurry: bool = False) -> None:
        faults.forget(self)  # its log goes with it
        stop(self, hurry=hurry)

    EmbeddedServer.__init__, EmbeddedServer.stop = watched, stopped  # type: ignore[method-assign]


def process_aborted(process: subprocess.Popen[bytes]) -> bool | None:
    """Whether SIGABRT ended a process; None while it runs."""
    return _is(-signal.SIGABRT, process.poll())


def _is(code: int, end: int | None) -> bool | None:
    return None if end is None else end == code


def pytest_configure() -> None:
    if EmbeddedServer.stop.__name__ != "stopped":
        _watch_embedded_servers()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A test; if it failed and the fault has ended a server, it runs again, with every fixture made anew."""
    if UNIT in item.path.parents:  # they start no process
        return None
    before = faults.started_again
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports, ended = _run(item, nextitem)
    if ended and faults.repeated < MOST and any(report.failed for report in reports):
        faults.repeated += 1
        reports, _ = _run(item, nextitem)
    if count := faults.started_again - before:
        reports[-1].user_properties.append((PROPERTY, str(count)))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run(item: pytest.Item, nextitem: pytest.Item | None) -> tuple[Sequence[pytest.TestReport], int]:
    """Reports of a test, and the number of servers that the fault has ended.

    If there is one, every fixture ends, so that the next test starts new servers.
    """
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    faults.look(wait=any(report.failed for report in reports))
    ended, faults.ended = faults.ended, 0
    if ended:
        with suppress(Exception):  # the server is gone
            item.session._setupstate.teardown_exact(None)
        faults.started_again += ended
    return reports, ended


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many there were, in all workers: their reports carry the numbers."""
    reports = (report for reports in terminalreporter.stats.values() for report in reports)
    counts = {
        report.nodeid: int(value)
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == PROPERTY
    }
    if not counts:
        return
    total = sum(counts.values())
    servers = "1 server that Triton ended was" if total == 1 else f"{total} servers that Triton ended were"
    terminalreporter.write_line(f"{servers} started again (server issue 8882):")
    for nodeid in counts:
        terminalreporter.write_line(f"  {nodeid}")
