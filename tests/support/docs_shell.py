"""A shell that runs a page's commands in order, in a folder of its own, with the ports of the page moved.

The page's ports are the defaults (8000 to 8002, 9000). Here each run has free ones: an address in a command
becomes the real one, an address in an output that of the page. A server that would keep the terminal is
started with --detach.
"""

from __future__ import annotations

import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.cli import own
from tests.support.serve_repository import free_port, listens

ROOT = Path(__file__).resolve().parents[2]
_END = "end-of-command-7f3b"
_SERVES = re.compile(r"^trb (serve|gateway)\b(?! status)")
_HOST = r"(localhost|127\.0\.0\.1)"


@dataclass(frozen=True)
class Step:
    """A command, and what the page shows of its output."""

    command: str
    shown: str


def steps(text: str, *, prompts: bool) -> Iterator[Step]:
    """The commands of a block. With prompts, lines without one are output; else every line is a command."""
    lines, number = text.splitlines(), 0
    while number < len(lines):
        line = lines[number].removeprefix("$ ") if prompts else lines[number]
        number += 1
        if not line.strip() or line.startswith("#"):
            continue
        while not _complete(line) and number < len(lines):
            line += "\n" + lines[number]
            number += 1
        start = number
        while prompts and number < len(lines) and not lines[number].startswith("$ "):
            number += 1
        yield Step(line, "\n".join(lines[start:number]).strip("\n"))


def _complete(command: str) -> bool:
    """Whether bash would not ask for another line."""
    done = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True, check=False)
    return not done.stderr and not command.endswith("\\")


class Shell:
    """One bash, whose folder, variables and functions stay from command to command."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.http = _three_ports()
        self.gateway = free_port()
        self.ports = {8000: self.http, 8001: self.http + 1, 8002: self.http + 2, 9000: self.gateway}
        programs = folder.parent / "programs"
        programs.mkdir()
        for name, words in (("trb", "-m triton_repo_builder"), ("python", ""), ("python3", "")):
            script = programs / name
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
            script.chmod(0o755)
        (folder.parent / "tmp").mkdir(exist_ok=True)
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TRB_"))},
            **own(folder.parent),
            "HOME": str(folder.parent),
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, folder))),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            **env,
            "PATH": f"{programs}{os.pathsep}{env.get('PATH', os.environ['PATH'])}",
        }
        self.bash = subprocess.Popen(
            ["taskset", "-c", _two_cores(), "bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.env,
            cwd=folder,
            start_new_session=True,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.bash.stdout is not None
        for line in self.bash.stdout:
            self.lines.put(line)

    def run(self, command: str, seconds: float = 600) -> tuple[str, int]:
        """What a command of a page prints, with the page's addresses, and its exit code."""
        here = self.here(command)
        if _SERVES.match(command):
            return self._start(here, command.split()[1])
        return self._send(here, seconds)

    def _send(self, command: str, seconds: float) -> tuple[str, int]:
        assert self.bash.stdin is not None
        self.bash.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\n%s %s\\n' {_END} $?\n")
        self.bash.stdin.flush()
        said, deadline = "", time.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no end after {seconds:g} s: {command}\n{said}") from None
            if line.startswith(_END):
                return self._there(said[:-1]), int(line.split()[1])
            said += line

    def _start(self, command: str, kind: str) -> tuple[str, int]:
        """``trb serve`` or ``trb gateway`` in the background, ready."""
        words = command.partition("   #")[0].strip()
        if kind == "serve":
            more = "" if "--http-port" in words else _flags(http=0, grpc=1, metrics=2, base=self.http)
            if "--openai" in words and "--openai-port" not in words:
                more += f" --openai-port {self.gateway}"
            detach = "" if "--detach" in words else " --detach"
            return self._send(f"{words}{detach}{more}", 600)
        port = re.search(r"--port (\d+)", words)
        more = "" if port else f" --port {self.gateway}"
        where = "" if "--url" in words else f" --url 127.0.0.1:{self.ports[8001]}"
        self._send(f"{words}{more}{where} > gateway.log 2>&1 &", 10)
        deadline = time.monotonic() + 180
        while not listens(self.gateway):
            if time.monotonic() > deadline:
                return (self.folder / "gateway.log").read_text(), 1
            time.sleep(0.1)
        return "", 0

    def here(self, command: str) -> str:
        """A text of the page with the addresses of this run."""
        for shown, port in self.ports.items():
            command = re.sub(rf"\b{_HOST}:{shown}\b", f"127.0.0.1:{port}", command)
        return command

    def _there(self, said: str) -> str:
        for shown, port in self.ports.items():
            said = said.replace(f"127.0.0.1:{port}", f"localhost:{shown}")
        return said.replace(f"{self.folder}/", "").replace(str(self.folder), ".")

    def close(self) -> None:
        """Stop what runs: a detached server, then the shell and its children."""
        try:
            self._send("trb stop >/dev/null 2>&1 || trb stop --all >/dev/null 2>&1", 180)
        finally:
            os.killpg(self.bash.pid, signal.SIGTERM)
            self.bash.wait(30)


def _flags(base: int, **offsets: int) -> str:
    return "".join(f" --{kind}-port {base + offset}" for kind, offset in offsets.items())


def _two_cores() -> str:
    """The pages are of a machine with two cores: instances and threads follow from it."""
    return ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))


def _three_ports() -> int:
    """The first of three free ports in a row: trb takes HTTP's plus one for gRPC's."""
    for _ in range(100):
        first = free_port()
        if first < 65_000 and not any(listens(first + more) for more in (1, 2)):
            return first
    raise AssertionError("no three free ports in a row")


@contextmanager
def opened(folder: Path, env: Mapping[str, str]) -> Iterator[Shell]:
    """A shell in this folder, closed with its servers in the end."""
    shell = Shell(folder, env)
    try:
        yield shell
    finally:
        shell.close()
