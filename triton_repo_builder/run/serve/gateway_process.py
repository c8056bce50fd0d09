"""The gateway that ``trb serve --openai`` runs beside its server: a process that is started again if it ends.

It ends with ``trb``, also when that is killed: its standard input is a pipe whose other end ``trb`` holds.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from triton_repo_builder.base import process
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.process import Process
from triton_repo_builder.run.gateway.server import check_packages
from triton_repo_builder.run.serve import log_lines
from triton_repo_builder.run.serve.background import registry
from triton_repo_builder.run.serve.engine import Progress
from triton_repo_builder.run.serve.processes import ports, proc
from triton_repo_builder.run.serve.restarts import LONGEST, QUIET

READY = 60.0
"""Seconds until the gateway must listen."""
MARGIN = 2.0
"""Seconds for its own end, after the last request."""
ENDS_WITH_INPUT = "--end-with-input"
COMMAND = "gateway"
HEADER = "I{now:%m%d %H:%M:%S.%f} {pid} gateway:0] "
"""Format of the server's own information: no line is taken for an error of the server."""


def check(host: str, port: int) -> int:
    """The port, or a free one for 0. Raises ``TrbError`` if no gateway could run there."""
    check_packages()
    return ports.one(host, "openai", port)


def address(repository: Path) -> str:
    """URL of a gateway on this machine whose ``--repo`` this is; empty if there is none."""
    resolved = str(repository.resolve())
    for pid in proc.pids():
        argv = proc.arguments(pid)
        if COMMAND in argv and any("triton_repo_builder" in word or word.endswith("/trb") for word in argv):
            port = proc.option(argv, "--port") or proc.option(argv, "-p")
            repo = proc.option(argv, "--repo")
            if repo and str(proc.path(pid, repo).resolve()) == resolved and port != "0":
                return f"http://{reached(proc.option(argv, '--host') or '127.0.0.1')}:{port or 9000}"
    return ""


def beside(http: str) -> str:
    """URL of the gateway of the server in the background with this HTTP address; empty if there is none."""
    with suppress(TrbError):
        for entry in registry.unswept():
            if entry.urls["http"] == http.rstrip("/"):
                return entry.urls.get("openai", "")
    return ""


def reached(host: str) -> str:
    """The host by which a client on this machine reaches a listener, as part of a URL."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{name}]" if ":" in name else name


class GatewayProcess:
    """A running gateway; ``stop`` ends it."""

    def __init__(
        self, arguments: Sequence[str], host: str, port: int, log: Callable[[], Path], tell: Progress
    ) -> None:
        """Start it and return when it listens; ``log`` is the server's log. Raises ``TrbError``."""
        self.url = f"http://{reached(host)}:{port}"
        self.restarts = 0
        listening = (f"--host={host}", f"--port={port}", "--json", ENDS_WITH_INPUT)
        self._argv = process.python("triton_repo_builder", COMMAND, *arguments, *listening)
        self._log = log
        self._as_json = "--log-format=json" in arguments
        self._tell = tell
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._child = self._start()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def stop(self, seconds: float, drain: float = 0.0) -> None:
        """End the gateway: requests under way are answered, within so many seconds.

        With ``drain`` by SIGTERM: for so long /health says 503 first, and new requests are still answered.
        """
        with self._lock:
            self._stopping.set()
        process.end(self._child, drain + seconds + MARGIN, signal.SIGTERM if drain else signal.SIGINT)
        self._thread.join(MARGIN)

    def _start(self) -> Process:
        """A process that listens. Raises ``TrbError``."""
        with self._lock:
            if self._stopping.is_set():
                raise TrbError(Code.NOT_RUNNING, "the gateway was stopped")
            child = process.spawn_with_pipes(self._argv, env=os.environ)
            self._child = child
        try:
            self._wait_ready(child)
        except BaseException:
            process.end(child, 0)
            raise
        return child

    def _wait_ready(self, child: Process) -> None:
        deadline = time.monotonic() + READY
        lines: list[str] = []
        while time.monotonic() < deadline:
            text = process.line(child, max(0.0, deadline - time.monotonic()))
            document = _document(text)
            if "url" in document:
                return
            if "exit_code" in document:
                raise _error(document)
            if text:
                lines.append(text)
                if text.startswith("warning"):
                    self._tell(text)
                elif document.get("level") == "warning":
                    self._tell(f"warning: {document.get('message')}")
            elif child.poll() is not None:
                break
            else:
                time.sleep(0.01)
        said = "\n".join(lines[-8:]) or "and said nothing"
        raise TrbError(
            Code.SERVER_DIED, f"the gateway does not listen: {said}", remedy="run trb gateway by itself"
        )

    def _keep(self) -> None:
        """Read the gateway's output, and start it again until it is stopped."""
        pause = 1.0
        while True:
            begun = time.monotonic()
            self._copy_output(self._child)
            code = self._child.wait()
            if time.monotonic() - begun >= QUIET:
                pause = 1.0
            while not self._stopping.is_set():
                self._tell(f"warning: the gateway ended (exit code {code}): starting it again in {pause:g} s")
                if self._stopping.wait(pause):
                    return
                pause = min(2 * pause, LONGEST)
                try:
                    self._start()
                except TrbError as error:
                    if not self._stopping.is_set():
                        self._tell(f"warning: {error.message}")
                else:
                    self.restarts += 1
                    self._tell(f"the gateway answers again at {self.url}")
                    break
            else:
                return

    def _copy_output(self, child: Process) -> None:
        """Append the gateway's lines to the server's log, until it ends."""
        rest = b""
        for piece in process.chunks(child):
            *lines, rest = (rest + piece).split(b"\n")
            self._append(child.pid, lines)
        self._append(child.pid, [rest] if rest else [])

    def _append(self, pid: int, lines: Sequence[bytes]) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        # A full disk, or a log that is gone: the gateway goes on.
        with suppress(OSError), os.fdopen(os.open(self._log(), flags), "ab") as sink:
            sink.write(b"".join(self._entry(pid, line) for line in lines if line))

    def _entry(self, pid: int, line: bytes) -> bytes:
        """The gateway's line as one of the server's log."""
        from datetime import datetime

        if not self._as_json:
            return HEADER.format(now=datetime.now(), pid=pid).encode() + line + b"\n"
        text = line.decode("utf-8", "replace")
        return (text if log_lines.is_object(text) else log_lines.line(text)).encode() + b"\n"


def _document(text: str) -> dict[str, object]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _error(document: dict[str, object]) -> TrbError:
    """The error that the gateway printed as JSON."""
    code = next((code for code in Code if code.kind == document["code"]), Code.SERVER_DIED)
    texts = {name: str(document.get(name) or "") for name in ("error", "where", "remedy")}
    return TrbError(code, f"the gateway: {texts['error']}", where=texts["where"], remedy=texts["remedy"])
