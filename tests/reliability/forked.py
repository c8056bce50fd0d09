"""``trb`` in a child of this process, which has imported everything already; strace attaches to it."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LIMIT = 100
"""Seconds after which a command counts as one that hangs: it gets SIGALRM."""
HUNG, KILLED = -signal.SIGALRM, -signal.SIGKILL
_LAZY = ("onnx", "onnxruntime", "tokenizers", "s3fs", "rich.progress", "encodings.idna", "stringprep")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended."""

    code: int
    """Negative: the signal."""
    output: str
    """stdout and stderr."""
    log: str = ""
    """strace's record."""


def find_strace() -> str:
    """Path of strace; ends this process if it is not installed."""
    strace = shutil.which("strace")
    if strace is None:
        raise SystemExit("strace is not installed: apt-get install -y strace")
    return strace


def warm() -> None:
    """Import all that a command may need, so that a forked one begins at once."""
    import triton_repo_builder
    from triton_repo_builder.base import deadline

    sys.dont_write_bytecode = True
    # In the main thread: strace counts the calls of each thread, and none of ours has to be given up here.
    deadline.within = lambda seconds, action: action()
    for module in pkgutil.walk_packages(triton_repo_builder.__path__, "triton_repo_builder."):
        if ".runtime" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in _LAZY:
        importlib.import_module(name)


def trb(
    argv: Sequence[str], cwd: Path, *, env: Mapping[str, str] | None = None, options: Sequence[str] = ()
) -> Ended:
    """Run ``trb ARGV`` in ``cwd``, ``options`` for strace; temporary files have the same names each time."""
    output, log = (cwd.with_name(f"{cwd.name}.{kind}") for kind in ("out", "log"))
    log.unlink(missing_ok=True)
    wait, start = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(start)
        _child(argv, cwd, env or {}, output, wait)
    os.close(wait)
    tracer = _attach(child, [find_strace(), *options, "-qq", "-o", str(log)]) if options else None
    os.write(start, b"x")
    os.close(start)
    _, status = os.waitpid(child, 0)
    if tracer:
        tracer.wait(timeout=LIMIT)
    return Ended(
        code=os.waitstatus_to_exitcode(status),
        output=output.read_text(encoding="utf-8", errors="replace"),
        log=log.read_text(encoding="utf-8", errors="replace") if log.exists() else "",
    )


def _attach(child: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:
    tracer = subprocess.Popen([*argv, "-p", str(child)], stdin=subprocess.DEVNULL)
    while "TracerPid:\t0\n" in Path(f"/proc/{child}/status").read_text():
        if tracer.poll() is not None:
            os.kill(child, signal.SIGKILL)
            raise SystemExit(f"strace cannot attach to a process here (exit code {tracer.returncode})")
        time.sleep(0.001)
    return tracer


def _child(argv: Sequence[str], cwd: Path, env: Mapping[str, str], output: Path, wait: int) -> None:
    """Never returns."""
    code = 99
    try:
        signal.alarm(LIMIT)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.chdir(cwd)
        os.environ.update(env)
        tempfile.tempdir = None
        tempfile._name_sequence = _names()  # type: ignore[attr-defined]
        sink = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        from triton_repo_builder.cli import main

        os.read(wait, 1)
        try:
            main(list(argv))
        except SystemExit as end:
            code = int(end.code or 0)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
    finally:
        os._exit(code)


def _names() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"{number:08d}"
