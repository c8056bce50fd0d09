"""The one door to other processes."""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

_RUN_MODULE = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; import runpy; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
Process = subprocess.Popen[bytes]
"""A process that was started."""
GRACE = 3.0
"""Seconds that a command has to clean up after an interrupt."""


class ProcessFailed(Exception):
    """A command that did not exit 0: carries the command, its code and its output."""

    def __init__(self, argv: Sequence[str], code: int, stdout: str, stderr: str) -> None:
        super().__init__(f"{shlex.join(argv)} exited {code}\n{stderr.strip() or stdout.strip()}")
        self.argv = tuple(argv)
        self.code = code
        self.stdout = stdout
        self.stderr = stderr


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with this Python.

    Not ``python -m``, which imports from the current folder first; ``-P`` is for Python 3.11 and newer.
    """
    return [sys.executable, "-c", _RUN_MODULE, module, *arguments]


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    stdin: str | None = None,
) -> str:
    """Run to the end and return stdout; raise ``ProcessFailed`` on any other exit code than 0.

    Without ``stdin`` the command shares ours. Output that is not UTF-8 (file names, say) passes through as
    surrogates, as with ``os.fsdecode``; in ``ProcessFailed`` it is replaced, for people to read.
    """
    try:
        done = _run(argv, env, cwd, timeout, stdin)
    except subprocess.TimeoutExpired:
        raise ProcessFailed(argv, -1, "", f"timed out after {timeout:g} s") from None
    if done.returncode:
        output = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
        raise ProcessFailed(argv, done.returncode, *output)
    return done.stdout.decode("utf-8", "surrogateescape")


def _run(
    argv: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: Path | None,
    timeout: float | None,
    stdin: str | None,
) -> subprocess.CompletedProcess[bytes]:
    content = None if stdin is None else stdin.encode("utf-8", "surrogateescape")
    with subprocess.Popen(
        list(argv),
        env=None if env is None else dict(env),
        cwd=cwd,
        stdin=None if content is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            stdout, stderr = child.communicate(content, timeout=timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            raise
        except BaseException:
            _interrupt(child)
            raise
    return subprocess.CompletedProcess(child.args, child.returncode, stdout, stderr)


def _interrupt(child: Process) -> None:
    """End a command and its child processes, as Ctrl-C on a terminal does: git and pip tidy up then."""
    if child.poll() is not None:
        return
    family = (child.pid, *_descendants(child.pid))
    _signal(family, signal.SIGINT)
    try:
        child.wait(GRACE)
    except subprocess.TimeoutExpired:
        _signal(family, signal.SIGKILL)
        child.wait()


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _descendants(pid: int) -> list[int]:
    """Processes below one, as far as this system tells."""
    children: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it ended
            children += [int(child) for child in file.read_text().split()]
    return [each for child in children for each in (child, *_descendants(child))]


@contextmanager
def reading(
    argv: Sequence[str], *, stdin: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[IO[bytes]]:
    """Stdout as a stream, for output that may be larger than memory. Raises ``ProcessFailed``."""
    with (
        stdin.open("rb") as source,
        subprocess.Popen(
            list(argv),
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as child,
    ):
        assert child.stdout is not None
        yield child.stdout
    if child.returncode:
        raise ProcessFailed(argv, child.returncode, "", "")


def spawn(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str],
) -> Process:
    """Start in the background with stdout and stderr appended to ``log``, which this user alone may read.

    A new session keeps a terminal's Ctrl-C from reaching the child before we decide how to stop it.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(log, flags, 0o600), "ab") as sink:
        return subprocess.Popen(
            list(argv),
            env=dict(env),
            stdout=sink,
            stderr=sink,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def spawn_with_pipes(argv: Sequence[str], *, env: Mapping[str, str]) -> Process:
    """Start in the background with a pipe each way; its stdin ends when this process ends, even if killed.

    ``line`` returns its output, errors included; ``send`` writes its input.
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


def spawn_python(module: str, *arguments: str) -> tuple[Process, Connection]:
    """Start one of our own modules with a connection, whose file descriptor is its first argument.

    Ctrl-C does not reach it.
    """
    ours, theirs = socket.socketpair()
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    with theirs:
        child = subprocess.Popen(
            python(module, str(theirs.fileno()), *arguments),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return child, Connection(ours.detach())


def send(child: Process, data: bytes) -> None:
    """Write all of it to a child with pipes; harmless if that ended or was released."""
    assert child.stdin is not None
    left = memoryview(data)
    with suppress(BrokenPipeError):
        while left and not child.stdin.closed:
            left = left[child.stdin.write(left) :]


def line(child: Process, timeout: float) -> str:
    """The next line that a child with pipes prints; its last output if it ended; else empty.

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


def chunks(child: Process) -> Iterator[bytes]:
    """Pieces of the output of a child with pipes, until it ends."""
    assert child.stdout is not None
    while piece := os.read(child.stdout.fileno(), 1 << 16):
        yield piece


def end(child: Process, grace: float, number: int = signal.SIGINT) -> None:
    """Ask a child to end, as Ctrl-C does; kill it after ``grace`` seconds or if the wait is interrupted."""
    with suppress(ProcessLookupError):
        child.send_signal(number)
    try:
        child.wait(grace)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    except BaseException:
        child.kill()
        child.wait()
        raise


def to_the_end(step: Callable[[], object]) -> None:
    """Do all of a step that may be done twice. Ctrl-C on the way is raised once it is done: it comes once."""
    try:
        step()
    except KeyboardInterrupt:
        step()
        raise


def release(child: Process) -> None:
    """Close the standard input of a child with pipes, and wait until it ended."""
    assert child.stdin is not None
    with suppress(OSError):
        child.stdin.close()
    child.wait()
