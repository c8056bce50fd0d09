"""One reader's executions in one process: the same input gives the same outcome."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import click

from tests.reliability.guard import Guard
from tests.reliability.readers.reader import Reader
from triton_repo_builder.base.errors import TrbError

_NAME = re.compile(rb"[\w./ -]+\n")
OURS = "/triton_repo_builder/"
LONGEST = 512 << 10
"""Bytes of an input: what is read may take a multiple of it, and damage doubles stretches again and again."""


class Hang(BaseException):
    """An execution that took too long."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What an execution must not do."""

    key: str
    """The kind of exception and where it came from: the same for the same cause."""
    text: str


@cache
def guard() -> Guard:
    return Guard()


class Session:
    """A folder in which inputs are laid out and read; ``seconds`` for each, 0 for no limit."""

    def __init__(self, reader: Reader, folder: Path, seconds: int = 0) -> None:
        self.reader = reader
        self.seeds = reader.seeds()
        self._seconds = seconds
        self._case = folder.resolve() / "case"
        self._scratch = folder.resolve() / "tmp"
        self._scratch.mkdir()
        self._make()
        # What is imported on the way, some of it not harmless, is imported without the guard.
        self.reader.lay(self.seeds[0], self._case)
        with contextlib.suppress(Exception):
            self.reader.read(self._case)
        if seconds:
            signal.signal(signal.SIGALRM, _too_long)

    def _make(self) -> None:
        self._case.mkdir()
        self.reader.base(self._case)

    def input(self, seed: str, number: int) -> bytes:
        """The input of one execution."""
        rng = Random(f"{seed}/{self.reader.name}/{number}")
        return self.reader.damage(rng, rng.choice(self.seeds), self.seeds)[:LONGEST]

    def run(self, data: bytes) -> Failure | None:
        """Lay out an input, read it, and say what went wrong."""
        if self.reader.fresh:
            shutil.rmtree(self._case)
            self._make()
        self.reader.lay(data, self._case)
        writable = [str(self._scratch)] + [str(self._case / name) for name in self.reader.writes]
        temporary, tempfile.tempdir = tempfile.tempdir, str(self._scratch)
        signal.setitimer(signal.ITIMER_REAL, self._seconds) if self._seconds else None
        try:
            with guard().only(writable):
                self.reader.read(self._case)
        except (TrbError, click.UsageError) as error:
            return _printed(error)
        except self.reader.allowed:
            return None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return _failure(error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0) if self._seconds else None
            tempfile.tempdir = temporary
        return None

    def smaller(self, data: bytes, key: str, seconds: float = 10) -> bytes:
        """A shorter input with the same failure."""
        deadline = time.monotonic() + seconds

        def same(candidate: bytes) -> bool:
            failure = self.run(candidate)
            return failure is not None and failure.key == key

        for shorten in (_fewer_values, _fewer_bytes):
            again = True
            while again and time.monotonic() < deadline:
                again = False
                for candidate in shorten(data):
                    if time.monotonic() > deadline:
                        break
                    if len(candidate) < len(data) and same(candidate):
                        data, again = candidate, True
                        break
        return data


def failures(reader: str, inputs: Mapping[str, bytes]) -> dict[str, str]:
    """What a reader does wrong, by the inputs' names; for a process that does nothing else."""
    from tests.reliability.readers import READERS

    with tempfile.TemporaryDirectory(prefix="trb-fuzz-") as folder:
        session = Session(READERS[reader], Path(folder))
        return {name: failure.text for name, data in inputs.items() if (failure := session.run(data))}


def _printed(error: TrbError | click.UsageError) -> Failure | None:
    """What the command line prints must be printable."""
    try:
        text = str(error)
        text.encode("utf-8", "surrogateescape" if "\\u" not in ascii(text) else "backslashreplace")
    except Exception as problem:
        return _failure(problem)
    return None


def _too_long(*_: Any) -> None:
    raise Hang("too long")


def _failure(error: BaseException) -> Failure:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if OURS in frame.filename]
    where = f"{frames[-1].filename.rpartition(OURS)[2]}:{frames[-1].name}" if frames else "?"
    text = f"{type(error).__name__}: {str(error)[:200]}"
    if frames:
        text += f" ({frames[-1].filename.rpartition(OURS)[2]}:{frames[-1].lineno})"
    return Failure(key=f"{type(error).__name__} {where}", text=text)


def _head(data: bytes) -> int:
    """Bytes of the line with the name, if there is one."""
    match = _NAME.match(data)
    return match.end() if match else 0


def _fewer_bytes(data: bytes) -> Iterator[bytes]:
    head = _head(data)
    size = len(data) // 2
    while size:
        for at in range(head, len(data), size):
            yield data[:at] + data[at + size :]
        size //= 2 if len(data) < 2000 or size > 64 else size


def _fewer_values(data: bytes) -> Iterator[bytes]:
    """JSON with one key or element less."""
    prefix, content = data[: _head(data)], data[_head(data) :]
    try:
        document = json.loads(content)
        places = list(_places(document))
    except (ValueError, RecursionError):
        return
    for remove in places:
        undo = remove()
        try:
            yield prefix + json.dumps(document).encode("utf-8", "surrogatepass")
        except (ValueError, RecursionError):
            return
        undo()


def _places(value: Any) -> Iterator[Callable[[], Callable[[], None]]]:
    keys = (
        list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    )
    for key in keys:

        def remove(key: Any = key) -> Callable[[], None]:
            before = dict(value) if isinstance(value, dict) else list(value)
            del value[key]

            def undo() -> None:
                value.clear()
                value.update(before) if isinstance(value, dict) else value.extend(before)

            return undo

        yield remove
    for key in keys:
        yield from _places(value[key])


def memory() -> int:
    """Most bytes of memory that this process ever had."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit_memory(more: int) -> None:
    """Let this process take so many bytes of address space beside what it has."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
