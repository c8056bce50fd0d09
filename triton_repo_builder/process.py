"""The one door to other processes."""

from __future__ import annotations

import os
import selectors
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path


class ProcessFailed(Exception):
    """A command that did not exit 0: carries the command, its code and what it printed."""

    def __init__(self, argv: Sequence[str], code: int, stdout: str, stderr: str) -> None:
        super().__init__(f"{shlex.join(argv)} exited {code}\n{stderr.strip() or stdout.strip()}")
        self.argv = tuple(argv)
        self.code = code
        self.stdout = stdout
        self.stderr = stderr


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    stdin: str | None = None,
) -> str:
    """Run to the end and return stdout; raise ``ProcessFailed`` on any other exit code than 0.

    With ``stdin`` that is what it reads; else it shares ours. Bytes that are no UTF-8 (names of files, say)
    pass through as surrogates, as ``os.fsdecode`` has them; what a failure says is for people to read.
    """
    try:
        done = _run(argv, env, cwd, timeout, stdin)
    except subprocess.TimeoutExpired:
        raise ProcessFailed(argv, -1, "", f"not done after {timeout:g} s") from None
    if done.returncode:
        said = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
        raise ProcessFailed(argv, done.returncode, *said)
    return done.stdout.decode("utf-8", "surrogateescape")


def _run(
    argv: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: Path | None,
    timeout: float | None,
    stdin: str | None,
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        list(argv),
        env=None if env is None else dict(env),
        cwd=cwd,
        timeout=timeout,
        input=None if stdin is None else stdin.encode("utf-8", "surrogateescape"),
        capture_output=True,
        check=False,
    )


Process = subprocess.Popen[bytes]
"""A process that was started in the background."""


def spawn(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str],
    new_session: bool = True,
) -> Process:
    """Start in the background with stdout and stderr appended to ``log``.

    A new session keeps a terminal's Ctrl-C from reaching the child before we decide how to stop it.
    """
    with log.open("ab") as sink:
        return subprocess.Popen(
            list(argv),
            env=dict(env),
            stdout=sink,
            stderr=sink,
            stdin=subprocess.DEVNULL,
            start_new_session=new_session,
        )


def leashed(argv: Sequence[str], *, env: Mapping[str, str]) -> Process:
    """Start in the background with a pipe each way; its stdin ends when this process ends, however it ends.

    What it prints, errors included, is for ``line``; what it reads comes from ``send``.
    """
    return subprocess.Popen(
        list(argv),
        env=dict(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        start_new_session=True,
    )


def send(child: Process, data: bytes) -> None:
    """Write all of it to a leashed child, or to one that is gone."""
    assert child.stdin is not None
    left = memoryview(data)
    with suppress(BrokenPipeError):
        while left:
            left = left[child.stdin.write(left) :]


def line(child: Process, timeout: float) -> str:
    """The next line that a leashed child prints; the last one it printed if it ended; else empty.

    Waits ``timeout`` seconds at most for each piece of it.
    """
    assert child.stdout is not None
    read = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while not read.endswith(b"\n") and selector.select(timeout):
            piece = child.stdout.read(1)
            if not piece:
                break
            read += piece
    return read.decode("utf-8", "surrogateescape").removesuffix("\n")


def alive(pid: int) -> bool:
    """Whether a process with this id exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
