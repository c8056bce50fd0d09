"""What a reader must not do while it is fuzzed: write elsewhere, start a process, use a network."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PATHS = {
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "os.utime": (0,),
    "shutil.rmtree": (0,),
    "shutil.move": (0, 1),
}
"""Audit events (docs.python.org/3/library/audit_events.html) and which of their arguments are changed."""
_BY_FOLDER = {"os.remove": 1, "os.rename": 2, "os.mkdir": 2, "os.rmdir": 1, "os.chmod": 2, "os.utime": 3}
"""Where the event has a folder's descriptor: then the path is below one that was seen already (rmtree)."""
_NEVER = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "socket.bind")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _below(path: str, folder: str) -> bool:
    """``folder`` may be the beginning of a name: it ends with a dash then."""
    return path == folder or path.startswith(folder if folder.endswith("-") else folder + os.sep)


class Outside(BaseException):
    """Something that a reader must not do; it is not done."""


class Guard:
    """Audit hook; it cannot be removed, so there is one per process."""

    def __init__(self) -> None:
        self.allowed: tuple[str, ...] | None = None
        self.seen: list[str] = []
        self._thread = 0
        """The one that is guarded: the reader's."""
        sys.addaudithook(self._hook)

    @contextmanager
    def only(self, folders: Sequence[str]) -> Iterator[None]:
        """Allow changes below these real paths only; what was tried is raised at the end if not before."""
        self.seen.clear()
        self._thread = threading.get_ident()
        self.allowed = tuple(folders)
        try:
            yield
        finally:
            self.allowed = None
        if self.seen:
            raise Outside(self.seen[0])

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.allowed is None or threading.get_ident() != self._thread:
            return  # another test's server may still be watched
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, (str, bytes)) and isinstance(flags, int) and flags & _WRITES:
                self._check(event, path)
        elif event in _PATHS:
            place = _BY_FOLDER.get(event)
            if place is not None and place < len(arguments) and arguments[place] not in (-1, None):
                return
            for number in _PATHS[event]:
                if isinstance(arguments[number], (str, bytes, os.PathLike)):
                    self._check(event, os.fspath(arguments[number]))
        elif event in _NEVER:
            self._refuse(f"{event} {arguments[0]!r:.80}")

    def _check(self, event: str, path: str | bytes) -> None:
        text = os.fsdecode(path)
        # The folder's real path: the last part may be a link that is itself replaced or removed.
        folder, name = os.path.split(text)
        real = str(Path(folder).resolve() / name) if name != ".." else str(Path(text).resolve())
        if event == "os.mkdir" and Path(real).is_dir():
            return  # mkdir(parents=True, exist_ok=True)
        if real != os.devnull and not any(_below(real, one) for one in self.allowed or ()):
            self._refuse(f"{event} {text!r:.200}")

    def _refuse(self, what: str) -> None:
        self.seen.append(what)
        raise Outside(what)
