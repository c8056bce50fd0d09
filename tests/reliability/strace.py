"""Reads what strace recorded: which calls change files below a folder, and what of it was never synced."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

RENAMES = ("rename", "renameat", "renameat2")
LINKS = ("link", "linkat")
SYNCS = ("fsync", "fdatasync")
EVERYTHING = ("sync", "syncfs")
DATA = ("write", "pwrite64", "writev", "sendfile", "copy_file_range", "ftruncate", "ioctl")
"""Calls whose file is a descriptor."""
CALLS = (
    *("openat", "open", "creat", *DATA, *RENAMES, *LINKS, *SYNCS, *EVERYTHING),
    *("unlink", "unlinkat", "rmdir", "mkdir", "mkdirat", "symlink", "symlinkat", "truncate"),
    *("fchmod", "fchmodat", "chmod", "utimensat"),
)
"""The file and rename family."""
NETWORK = ("sendto", "sendmsg", "connect")
READS = ("openat", "read", *NETWORK)
"""Calls of a command that only reads the repository, and sends it."""
BY_FILE = (*(name for name in (*DATA, *SYNCS) if name != "ioctl"), "openat", "open")
"""What strace can count file by file, so that calls on other descriptors do not count."""
_LINE = re.compile(r"(?:(?P<pid>\d+) +)?(?P<name>[a-z][a-z0-9_]*)\((?P<rest>.*)")
_NAMED = re.compile(r'(?:(?:AT_FDCWD|\d+)<(?P<folder>(?:[^>\\]|\\.)*)>, )?"(?P<path>(?:[^"\\]|\\.)*)"')
_OPENED = re.compile(r"\d+<(?P<path>/(?:[^>\\]|\\.)*)>")
_FAILED = re.compile(r"= -1 E[A-Z]+ ")
_WRITING = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)")


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call that changes files."""

    pid: int
    name: str
    number: int
    """Of the calls with this name in this process, from 1: what strace's ``when`` counts."""
    paths: tuple[str, ...]
    """Absolute, as far as strace says so."""
    failed: bool = False

    @property
    def text(self) -> str:
        return f"{self.name} {self.number} ({' → '.join(self.paths)})"


def calls(log: str, root: str, parts: Sequence[str] = ("",), *, names: Sequence[str] = CALLS) -> list[Call]:
    """The calls of a record (``-y``, with or without ``-f``) that change what lies below ``root``.

    ``parts``: how paths below ``root`` have to begin; relative ones are taken to begin at ``root``. Calls
    elsewhere, and those that only read (unless ``names`` has such), count in ``number`` and are left out.
    """
    counted: Counter[tuple[int, str]] = Counter()
    chosen = []
    for line in log.splitlines():
        match = _LINE.match(line)
        if match is None or match["name"] not in names:
            continue
        pid, name, rest = int(match["pid"] or 0), match["name"], match["rest"]
        counted[pid, name] += 1
        if "read" not in names and not _changes(name, rest):
            continue
        paths = tuple(_paths(name, rest, root))
        if name in (*EVERYTHING, *NETWORK) or any(_below(path, root, parts) for path in paths):
            call = Call(
                pid=pid,
                name=name,
                number=counted[pid, name],
                paths=paths,
                failed=bool(_FAILED.search(rest)),
            )
            chosen.append(call)
    return chosen


def fault(call: Call, recorded: Sequence[Call], what: str, root: str) -> list[str]:
    """strace's options that let ``what`` (``error=EIO``, ``signal=KILL``) happen at one of the calls.

    gRPC wakes its threads by writing to a descriptor, and trb looks for processes in /proc, now more often,
    now less: what writes to a file or opens it is counted among the same to that file, those that read
    included (``names`` of ``calls`` with ``read``). A path may be one from the working folder, ``root``.
    """
    number, only = call.number, []
    if call.name in BY_FILE:
        path = call.paths[-1]
        same = [each for each in recorded if each.name == call.name and path in each.paths]
        number, only = same.index(call) + 1, ["-P", path, "-P", os.path.relpath(path, root)]
    chosen = f"trace={call.name}", f"inject={call.name}:{what}:when={number}"
    return ["-y", "-s", "0", *only, *(word for each in chosen for word in ("-e", each))]


def reached(log: str, call: Call, root: str) -> bool:
    """Whether a fault was at ``call``, by strace's record: counting may have led to another file."""
    lines = [line for line in log.splitlines() if _LINE.match(line)]
    hit = next((line for line in lines if "(INJECTED" in line), lines[-1] if lines else "")
    return any(found.paths == call.paths for found in calls(hit, root, names=(call.name, "read")))


def _changes(name: str, rest: str) -> bool:
    if name in ("openat", "open"):
        return bool(_WRITING.search(rest))
    return name != "ioctl" or "FICLONE" in rest


def _paths(name: str, rest: str, cwd: str) -> Iterator[str]:
    if name in (*DATA, *SYNCS, *NETWORK, "fchmod", "read"):
        yield from (match["path"] for match in _OPENED.finditer(rest.split('"')[0]))
        return
    for match in _NAMED.finditer(rest):
        yield os.path.normpath(os.path.join(match["folder"] or cwd, match["path"]))  # noqa: PTH118


def _below(path: str, root: str, parts: Sequence[str]) -> bool:
    return path.startswith(f"{root}/") and path.removeprefix(f"{root}/").startswith(tuple(parts))


def dirty(recorded: Sequence[Call]) -> set[str]:
    """Files that were written, and not synced after that, under the names that they have in the end."""
    lost: set[str] = set()
    for call in recorded:
        if call.failed:
            continue
        if call.name in EVERYTHING:
            lost.clear()
        elif call.name in SYNCS:
            lost -= set(call.paths)
        elif call.name in RENAMES:
            before, after = call.paths[:2]
            lost = {path for path in lost if not _within(path, after)}
            lost = {after + path[len(before) :] if _within(path, before) else path for path in lost}
        elif call.name in LINKS:
            lost |= {call.paths[1]} if call.paths[0] in lost else set()
        elif call.name in ("unlink", "unlinkat"):
            lost = {path for path in lost if not _within(path, call.paths[0])}
        elif call.name in ("openat", "open", "creat", "truncate"):
            lost |= set(call.paths)
        elif call.name in DATA:
            lost |= set(call.paths[: 1 if call.name != "copy_file_range" else 2][-1:])
    return lost


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
