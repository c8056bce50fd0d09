"""``trb`` in the tests' own process: the same parsing, exit code and output, without a second of imports.

What is about processes (signals, a killed trb, two at the same time) starts one: ``start``.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from tests.support.triton_faults import faults
from triton_repo_builder.base.errors import Code
from triton_repo_builder.base.process import ProcessFailed, run
from triton_repo_builder.cli import main

ARGV = (sys.executable, "-m", "triton_repo_builder")
FEW = ("--clients", "8", "--requests", "3")
"""Of trb smoke, for a repository of many endpoints: enough that requests join."""


def trb(*arguments: str | Path, cwd: Path | None = None) -> str:
    """Standard output; ``ProcessFailed`` if the exit code is not 0."""
    done = call(*arguments, cwd=cwd)
    if done.returncode:
        raise ProcessFailed(done.args, done.returncode, done.stdout, done.stderr)
    return done.stdout


def trb_apart(*arguments: str | Path) -> str:
    """As ``trb``, in a process of its own: beside threads that keep this one's interpreter busy."""
    argv = [*ARGV, *(str(argument) for argument in arguments)]
    try:
        return run(argv, timeout=600)
    except ProcessFailed as failure:
        faults.said(failure.stderr)
        raise


def call(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with more environment variables."""
    argv = [str(argument) for argument in arguments]
    out, err = _Stream(), _Stream()
    with _surroundings(cwd, env or {}), redirect_stdout(out), redirect_stderr(err):
        code = _exit_code(argv)
    return subprocess.CompletedProcess(["trb", *argv], code, out.text(), err.text())


def in_folder(tmp: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with temporary files and state of this test only."""
    if "--detach" in arguments:  # what stays in the background must not be a child of the tests
        return process(tmp, *arguments, cwd=cwd)
    (tmp / "tmp").mkdir(exist_ok=True)
    return call(*arguments, cwd=cwd, env=own(tmp))


def process(tmp: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own."""
    (tmp / "tmp").mkdir(exist_ok=True)
    done = subprocess.run(
        [*ARGV, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **own(tmp)},
        cwd=cwd,
        timeout=120,
        check=False,
    )
    faults.said(done.stderr)
    return done


def kind(stderr: str) -> Code:
    """The kind of the failure, which stands in brackets at the end of a message's first line."""
    found = re.findall(r"^error: .* \[([a-z-]+)\]$", stderr, flags=re.MULTILINE)
    assert len(found) == 1, stderr
    return next(code for code in Code if code.kind == found[0])


def own(tmp: Path) -> dict[str, str]:
    """Environment variables that keep temporary files and state below ``tmp``."""
    return {"TMPDIR": str(tmp / "tmp"), "XDG_STATE_HOME": str(tmp / "state")}


class _Stream(io.TextIOWrapper):
    """A pipe: no terminal, UTF-8, with the bytes below it."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="surrogateescape", write_through=True)

    def text(self) -> str:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode("utf-8", "surrogateescape")


@contextmanager
def _surroundings(cwd: Path | None, env: Mapping[str, str]) -> Iterator[None]:
    """Another working directory and environment; tempfile remembers its folder, so it forgets it here."""
    folder, before = Path.cwd(), dict(os.environ)
    remembered, tempfile.tempdir = tempfile.tempdir, None
    os.environ.update(env)
    if cwd is not None:
        os.chdir(cwd)
    try:
        yield
    finally:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(before)
        tempfile.tempdir = remembered


def _exit_code(argv: list[str]) -> int:
    try:
        main(argv)
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code
    raise AssertionError("main() returned instead of exiting")
