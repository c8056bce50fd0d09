"""Servers in the background: one small file each, so that ``trb status`` and ``trb stop`` find them."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files, transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.journal import staging
from triton_repo_builder.run.serve.processes import proc

STOP_TIMEOUT = 30.0
MESSAGES = ".messages"
"""Suffix of the file beside the entry with the output of its ``trb serve``."""
PART = ".part"
"""Suffix of an entry that is being written."""
NAME = re.compile(r"(?=.*[^0-9])[\w.][\w.-]{0,62}")
"""Names that users may give: no process ids, nothing that a shell or an option parser reads differently."""


@dataclass(frozen=True, kw_only=True)
class Background:
    """One server that ``trb serve --detach`` started."""

    pid: int
    """Process id of the ``trb serve`` that supervises the server."""
    born: str
    """Start time as the kernel counts it: distinguishes the process from a later one with the same id."""
    name: str
    repository: str
    engine: str
    server_pid: int | None
    urls: dict[str, str]
    log: str
    started: float
    endpoints: list[dict[str, Any]] = field(default_factory=list)
    about: str = ""
    container: str = ""
    restarts: int = 0
    """Number of restarts of the server after it ended."""
    grace: float = 0.0
    """Seconds that requests at its gateway may take when it is stopped."""


def about(entry: Background) -> dict[str, Any]:
    """The entry as users see it."""
    hidden = ("born", "started", "grace")
    return {name: value for name, value in asdict(entry).items() if name not in hidden}


def folder() -> Path:
    """The folder of the files, created if missing, accessible to this user only."""
    try:
        return transfer.state_folder()
    except OSError as error:
        raise TrbError(
            Code.OUTPUT_NOT_WRITABLE,
            f"cannot be created: {error.strerror}",
            where=str(error.filename),
            remedy="set XDG_STATE_HOME to a folder of yours",
        ) from None


def write(file: Path, entry: Background) -> None:
    """Write atomically: the process that waits for this file reads it at once. Raises ``TrbError``."""
    part = file.with_suffix(PART)
    try:
        files.create(part, json.dumps(asdict(entry)).encode(), mode=0o600)
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise unwritable(error) from None


def add(file: Path, entry: Background, name: str = "") -> None:
    """Write a new entry under this name, or the next free one like its own. Raises ``TrbError``."""
    with staging.exclusive(folder()):  # two servers may become ready at the same time
        if name:
            check_free(name)
        write(file, replace(entry, name=name or _free(entry.name)))


def check_free(name: str) -> None:
    """Raise ``TrbError`` USAGE if a running server has this name."""
    for server in unswept():
        if server.name == name:
            raise TrbError(
                Code.USAGE,
                f"a server '{name}' is already running in the background (pid {server.pid})",
                where="--name",
                remedy=f"choose another name, or stop that one first: trb stop {name}",
            )


def _free(name: str) -> str:
    """The name, or the first of ``name-2``, ``name-3``, … that no running server has."""
    taken = {server.name for server in unswept()}
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([name], numbered) if free not in taken)


def unswept() -> list[Background]:
    """The running servers; unlike ``sweep``, without removing what ``trb status`` says of the others."""
    return [entry for file in folder().glob("*.json") if (entry := read(file))]


def unwritable(error: OSError) -> TrbError:
    """The error for a folder of states that cannot be written."""
    return files.explain(error, folder(), how="by XDG_STATE_HOME", kept="no server runs")


def read(file: Path) -> Background | None:
    """The entry in a file; None if it is invalid or its process is gone."""
    try:
        entry = Background(**files.load_json(files.read(file)))
        _check_types(entry)
    except (OSError, *files.DAMAGED):
        return None
    return entry if runs(entry) else None


def latest(entry: Background) -> Background:
    """The current entry: a restarted server has another process and log."""
    return next((now for now in unswept() if now.pid == entry.pid), entry)


def _check_types(entry: Background) -> None:
    """Raise TypeError for a file that trb did not write, or that was damaged since."""
    kinds: dict[type, tuple[object, ...]] = {
        int: (entry.pid, entry.server_pid or 0, entry.restarts),
        str: (
            entry.born,
            entry.name,
            entry.repository,
            entry.engine,
            entry.log,
            entry.about,
            entry.container,
        ),
        dict: (entry.urls, *entry.endpoints),
        float: (float(entry.started),),
    }
    if any(not isinstance(value, kind) for kind, values in kinds.items() for value in values):
        raise TypeError
    if not all(0 <= pid < 2**31 for pid in (entry.pid, entry.server_pid or 0)) or not entry.pid:
        raise ValueError


def runs(entry: Background) -> bool:
    """Whether its ``trb serve`` still runs."""
    return proc.alive(entry.pid) and proc.start_time(entry.pid) == entry.born


def sweep() -> tuple[tuple[Background, ...], tuple[tuple[str, str], ...]]:
    """Running servers, oldest first; name and last message of servers that ended by themselves.

    Removes the files of the latter; a server that was stopped removes its own.
    """
    running = []
    ended = []
    for file in sorted(folder().glob("*.json")):
        entry = read(file)
        if entry is not None:
            running.append(entry)
            continue
        with suppress(OSError, *files.DAMAGED):
            name = str(files.load_json(files.read(file))["name"])
            words = _messages(file)
            ended.append(
                (name, words[words.rfind("error: ") :].strip() if "error: " in words else "was killed")
            )
        forget(file)
    return tuple(sorted(running, key=lambda entry: entry.started)), tuple(ended)


def _messages(file: Path) -> str:
    try:
        return files.read_text(file.with_suffix(MESSAGES), "replace")
    except OSError:
        return ""


def forget(file: Path) -> None:
    """Remove an entry."""
    file.unlink(missing_ok=True)
    file.with_suffix(MESSAGES).unlink(missing_ok=True)
    file.with_suffix(PART).unlink(missing_ok=True)


def select(servers: tuple[Background, ...], query: str | None, *, alternative: str = "") -> Background:
    """The server of this name, repository path or process id; without a query the only one.

    ``alternative`` ends the advice to name one of several.
    """
    if not servers:
        raise TrbError(
            Code.NOT_RUNNING,
            "no server is running in the background",
            remedy="start one: trb serve --detach",
        )
    listed = ", ".join(f"{server.name} ({server.pid})" for server in servers)
    if query is None:
        matching = list(servers)
    else:
        path = str(Path(query).resolve())
        matching = [
            s
            for s in servers
            if query in (s.name, str(s.pid), str(s.server_pid), s.container or None)
            or s.repository in (path, query)
        ]
    named = [server for server in matching if server.name == query]
    # One folder, two servers: the name says which. A name and another server's path: the user has to.
    if len(named) == 1 and len({server.repository for server in matching}) == 1:
        matching = named
    if not matching:
        raise TrbError(
            Code.NOT_RUNNING, f"no server '{query}' is running in the background", remedy=f"running: {listed}"
        )
    if len(matching) > 1:
        raise TrbError(
            Code.USAGE,
            f"{len(matching)} servers match",
            remedy=f"name one by its name or process id{alternative}; running: "
            + ", ".join(f"{server.name} ({server.pid})" for server in matching),
        )
    return matching[0]


def stop(entry: Background) -> None:
    """Stop a server and wait until it is gone."""
    with suppress(ProcessLookupError):
        os.kill(entry.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT + entry.grace
    while proc.alive(entry.pid):
        if time.monotonic() > deadline:
            # The supervisor below it notices that its parent is gone and ends the server.
            with suppress(ProcessLookupError):
                os.kill(entry.pid, signal.SIGKILL)
            break
        time.sleep(0.05)
    server = entry.server_pid
    while server and proc.alive(server) and time.monotonic() < deadline + STOP_TIMEOUT:
        time.sleep(0.05)
