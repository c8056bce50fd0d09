"""A running server: code shared by all engines."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.run.client import Urls, admin_key
from triton_repo_builder.run.serve.engine import Failure
from triton_repo_builder.run.serve.loading import failure_causes
from triton_repo_builder.run.serve.processes.stubs import ProcessLister
from triton_repo_builder.run.serve.processes.watchdog import Watchdog

TICK = 0.1

Self = TypeVar("Self", bound="ManagedServer")


@dataclass(frozen=True, kw_only=True)
class Log:
    """The file of a server's output, and the byte at which this start begins."""

    path: Path
    start: int = 0


@dataclass(frozen=True, kw_only=True)
class LaunchedServer:
    """Facts of a server that an engine has launched."""

    urls: Urls
    log: Log
    folder: Path
    """Temporary folder, removed with the server."""
    endpoints: tuple[str, ...]
    about: str
    key: str = field(repr=False)
    """The admin key, empty for open APIs."""


class ManagedServer(ABC):
    """A tritonserver in explicit mode, its log and its Python processes. The end of ``with`` stops it."""

    engine: str
    pid: int | None
    container: str = ""
    final: bool = False

    def __init__(self, launched: LaunchedServer, stubs: ProcessLister) -> None:
        if launched.key:  # for what loads the models and watches them
            admin_key.remember(launched.urls.http, launched.key)
        self.urls = launched.urls
        self.log = launched.log.path
        self.endpoints = launched.endpoints
        self.about = launched.about
        self.stubs = stubs
        self.log_start = launched.log.start
        self._folder = launched.folder
        self._watchdog: Watchdog | None = None
        self._stop_requested = False
        self._gone = False
        self._error: TrbError | None = None
        self._lock = threading.Lock()

    @abstractmethod
    def alive(self) -> bool:
        """Whether the server runs."""

    @abstractmethod
    def died(self) -> TrbError:
        """The error for a server that ended by itself; keeps the log, and sets ``final``."""

    @abstractmethod
    def _end(self, hurry: bool) -> None:
        """Stop the server and wait for that."""

    @abstractmethod
    def _kill(self) -> None:
        """Stop the server at once, because the wait was interrupted."""

    @abstractmethod
    def _terminate(self) -> None:
        """Ask the server to end, without waiting."""

    def watch(self, watchdog: Watchdog) -> None:
        """Start the watchdog, which ends with the server."""
        self._watchdog = watchdog
        watchdog.start()

    def failures(self) -> tuple[Failure, ...]:
        """Models that broke while the server ran and could not be brought back."""
        error = self._error
        return () if error is None else (Failure(model=error.where, cause=error.message),)

    def wait(self, tick: Callable[[], None] = lambda: None) -> None:
        """Return when the server was stopped; raise ``TrbError`` if it ended for another reason.

        ``tick`` is called every ``TICK`` seconds while it runs.
        """
        while self.alive() and self._error is None:
            time.sleep(TICK)
            tick()
        if self._error is not None:
            raise self._error
        if not self._stop_requested:
            raise self.died()

    def output(self) -> str:
        """The server's output since this start."""
        return failure_causes.read(self.log, self.log_start)

    def last_errors(self) -> str:
        """Last errors of the log, to append to a message; empty without errors."""
        errors = failure_causes.last_errors(self.output())
        return f"; its last errors:\n{_indent(errors)}" if errors else ""

    def end_remedy(self) -> str:
        """The remedy for a server that ended by itself; keeps the log."""
        remedy = failure_causes.death_remedy(self.output())
        where = f"the server's whole output is in {self.keep_log()}"
        return f"{remedy}; {where}" if remedy else where

    def keep_log(self) -> Path:
        """Move the log out of the temporary folder, which is removed when the server stops."""
        if self.log.is_relative_to(self._folder) and self.log.exists():
            # A name that nobody can foresee, readable for this user alone.
            handle, kept = tempfile.mkstemp(prefix="trb-", suffix=".log", dir=self._folder.parent)
            os.close(handle)
            self.log.chmod(0o600)
            self.log = self.log.replace(kept)
        return self.log

    def stop(self, *, hurry: bool = False) -> None:
        """Stop the server and leave nothing behind; harmless when it already ended.

        With ``hurry``, do not wait for running requests and slow unloads.
        """
        self._stop_requested = True
        if self._watchdog is not None:
            self._watchdog.stop()
        with self._lock:
            if self._gone:
                return
            try:
                self._end(hurry)
            except BaseException:
                self._kill()
                raise
            finally:
                shutil.rmtree(self._folder, ignore_errors=True)
                admin_key.forget(self.urls.http)
            self._gone = True

    def give_up(self, error: TrbError) -> None:
        """End with this error, which ``wait`` then raises: a broken server must not seem ready."""
        self.keep_log()
        self._error = error
        self._terminate()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
