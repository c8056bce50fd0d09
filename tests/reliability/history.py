"""``make history``: every request through changes of version under kill, pause, restart and dead processes.

    python -m tests.reliability.history [--requests 100000] [--seed 0] [--output docs/reliability.md]

Two endpoints of three versions: one of a tokenizer and a model, one of a model alone. ``checker`` judges.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import tiny
import two_versions
from tokenizers import Tokenizer

from tests.reliability import checker
from tests.reliability.checker import Change, History, Kind, Outage, Outcome
from tests.reliability.recording_clients import Asked, Clients
from tests.reliability.report import section
from tests.support.cli import ARGV, trb
from tests.support.serve_repository import Serve, children, command, environment, free_port, until
from triton_repo_builder.run.client import HttpClient

VERSIONS = (1, 2, 3)
CLIENTS = 6
TEXTS = 60
PAUSES = (0.2, 2.0)
NEEDLESS = 20.0
"""Seconds after which a killed process that was not loaded again was not needed."""
LONGEST = 300.0
"""Seconds after which a command counts as hung."""
KINDS = ("promote", "promote", "rollback", "pause", "kill", "kill", "kill, then restart", "restart", "crash")
KINDS += ("crash while it changes", "stub")
"""What is drawn. A place for ``apply``: one more command in ``Chaos._argv``."""


def build(folder: Path) -> tuple[Path, tuple[Asked, Asked]]:
    """The repository, and what its endpoints are asked."""
    repository = folder / "model_repository"
    for version in VERSIONS:
        place = folder / str(version)
        text = tiny.classifier(place / "text")
        tiny.tensor_model(place / "net.onnx")
        if version > 1:
            two_versions.change_weights(text / "model.onnx", seed=version)
            two_versions.change_weights(place / "net.onnx", ("W",), seed=version)
        if version == 2:
            two_versions.reverse_letters(text / "tokenizer.json")
        number = "1" if version == 1 else "next"
        for name, model in (("text", text), ("net", place / "net.onnx")):
            arguments = ("--name", name, "--output", repository, "--version", number, "--instances", "1")
            trb("build", "--model", model, *arguments)
    return repository, (_texts(folder), _numbers(folder))


def _texts(folder: Path) -> Asked:
    rng = random.Random(0)
    texts = [" ".join(rng.choices(tiny.LETTERS, k=rng.randint(1, 18))) for _ in range(TEXTS)]
    answers = {}
    for version in VERSIONS:
        place = folder / str(version) / "text"
        tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        session = onnxruntime.InferenceSession(str(place / "model.onnx"))
        rows = []
        for text in texts:
            ids = np.array([tokenizer.encode(text).ids])
            feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": ids * 0}
            scores = np.exp(session.run(None, feeds)[0][0])
            rows.append(scores / scores.sum())
        answers[version] = np.array(rows)
    return _distinct(
        Asked(
            name="text",
            input="TEXT",
            output="scores",
            rows=np.array([[text.encode()] for text in texts], dtype=object),
            answers=answers,
        )
    )


def _numbers(folder: Path) -> Asked:
    rows = np.random.default_rng(0).normal(size=(TEXTS, 32)).astype(np.float32)
    files = {version: str(folder / str(version) / "net.onnx") for version in VERSIONS}
    answers = {v: onnxruntime.InferenceSession(file).run(None, {"X": rows})[0] for v, file in files.items()}
    return _distinct(Asked(name="net", input="X", output="Y", rows=rows, answers=answers))


def _distinct(asked: Asked) -> Asked:
    """Only the rows that each version answers in a way of its own."""
    kept = [
        row
        for row in range(len(asked.rows))
        if all(
            np.abs(asked.answers[one][row] - asked.answers[other][row]).max() > 1e-2
            for one in VERSIONS
            for other in VERSIONS
            if one < other
        )
    ]
    assert len(kept) > TEXTS // 4
    answers = {version: rows[kept] for version, rows in asked.answers.items()}
    return Asked(
        name=asked.name, input=asked.input, output=asked.output, rows=asked.rows[kept], answers=answers
    )


class Chaos:
    """A server with its repository, and all that is done to both, recorded."""

    def __init__(self, folder: Path, repository: Path, rng: random.Random) -> None:
        self.changes: list[Change] = []
        self.outages: list[Outage] = []
        self.done: Counter[str] = Counter()
        self.remarks: list[str] = []
        self.http, self.grpc = free_port(), free_port()
        self._folder, self._repository, self._rng = folder, repository, rng
        self._server = self._start()

    @property
    def pid(self) -> int:
        """Of tritonserver."""
        return self._server.server

    def ended(self) -> bool:
        """Whether the server is gone, as it should not be; then another one is started."""
        if self._ended_within(self._server.process, 5) is None:
            return False
        self._server = self._start()
        return True

    def act(self, kind: str) -> None:
        """One kind of disturbance, whole."""
        self.done[kind] += 1
        actions: dict[str, Callable[[], None]] = {
            "restart": self._restart,
            "crash": self._crash,
            "stub": self._kill_stub,
        }
        if kind in actions:
            actions[kind]()
        elif kind == "kill, then restart":
            self._change("kill")
            self._rng.choice((self._restart, self._crash))()
        else:
            self._change(kind)

    def stop(self) -> None:
        """End the server."""
        if self._server.process.poll() is None:
            self._server.process.send_signal(signal.SIGTERM)
            self._server.process.wait(60)

    def _change(self, kind: str) -> None:
        name, version = self._rng.choice(("text", "net")), self._rng.choice(VERSIONS)
        started = time.monotonic()
        process = subprocess.Popen(
            self._argv(name, version),
            env=environment(self._folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        crashed = False
        outcome = None
        if kind == "kill":
            if self._ended_within(process, self._rng.uniform(0.5, 6)) is None:
                process.kill()
                outcome = Outcome.KILLED
        elif kind == "pause":
            for _ in range(3):
                if self._ended_within(process, self._rng.uniform(0.5, 2)) is None:
                    process.send_signal(signal.SIGSTOP)
                    time.sleep(self._rng.uniform(*PAUSES))
                    process.send_signal(signal.SIGCONT)
        elif (
            kind == "crash while it changes"
            and self._ended_within(process, self._rng.uniform(0.5, 6)) is None
        ):
            crashed = True
            self._outage(lambda: os.kill(self._server.server, signal.SIGKILL), lambda: process.wait(LONGEST))
        said = process.communicate(timeout=LONGEST)[0]
        if outcome is None:
            outcome = Outcome.REFUSED if process.returncode else Outcome.ACKNOWLEDGED
        if "Traceback" in said or (outcome is Outcome.REFUSED and not crashed):
            self.remarks.append(f"{kind} {name} {version}: exit {process.returncode}: {said[-1500:]}")
        self.changes.append(
            Change(endpoint=name, version=version, started=started, ended=time.monotonic(), outcome=outcome)
        )
        self.done[f"{kind}: {outcome.value}"] += 1

    def _argv(self, name: str, version: int) -> list[str]:
        url = ["--url", f"http://127.0.0.1:{self.http}", "--grpc-url", f"127.0.0.1:{self.grpc}"]
        own = ["--no-preflight"] if self._rng.random() < 0.7 else []
        return [*ARGV, "promote", name, str(self._repository), "--version", str(version), *url, *own]

    def _ended_within(self, process: subprocess.Popen[str], seconds: float) -> int | None:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def _restart(self) -> None:
        self._outage(lambda: self._server.process.send_signal(signal.SIGTERM), lambda: None)

    def _crash(self) -> None:
        self._outage(lambda: os.kill(self._server.server, signal.SIGKILL), lambda: None)

    def _outage(self, end: Callable[[], None], before: Callable[[], Any]) -> None:
        started = time.monotonic()
        end()
        self._server.process.wait(60)
        before()
        self._server = self._start()
        self.outages.append(Outage(started=started, ended=time.monotonic(), server=True))

    def _start(self) -> Serve:
        ports = (f"--http-port={self.http}", f"--grpc-port={self.grpc}")
        server = Serve(self._folder, self._repository, "--json", "--restarts=0", *ports)
        server.ready()
        return server

    def _kill_stub(self) -> None:
        """A model's process: trb serve loads the model again, and until then errors are said."""
        stubs = [pid for pid in children(self._server.server) if "triton_python_backend_stub" in command(pid)]
        started = time.monotonic()
        os.kill(self._rng.choice(stubs), signal.SIGKILL)
        said = self._server.err.read_text().count("is ready again")
        client = HttpClient(f"127.0.0.1:{self.http}")

        def over() -> bool:
            """Loaded again; or it was a process of a version that was being unloaded, which nobody needs."""
            again = self._server.err.read_text().count("is ready again") > said
            ready = client.ready("text") and client.ready("net")
            return ready and (again or time.monotonic() - started > NEEDLESS)

        until(over, 120)
        self.outages.append(Outage(started=started, ended=time.monotonic(), server=False))


def run(folder: Path, requests: int, seed: int, kinds: Sequence[str] = ()) -> tuple[History, Chaos]:
    """Disturb until so many requests are through, or each of ``kinds`` once and so many requests at least."""
    repository, asked = build(folder)
    rng = random.Random(seed)
    chaos = Chaos(folder, repository, rng)
    try:
        at = (f"http://127.0.0.1:{chaos.http}", f"127.0.0.1:{chaos.grpc}")
        with Clients(*at, asked, CLIENTS, seed) as clients:
            for kind in kinds:
                chaos.act(kind)
            while len(clients.requests) < requests:
                chaos.act(rng.choice(KINDS))
                print(f"{len(clients.requests)} requests, {dict(chaos.done)}", file=sys.stderr, flush=True)
    finally:
        chaos.stop()
    history = History(
        first={"text": 1, "net": 1},
        requests=clients.requests,
        changes=chaos.changes,
        outages=chaos.outages,
    )
    return history, chaos


def document(history: History, chaos: Chaos, problems: Sequence[checker.Problem], seed: int) -> str:
    """The section of docs/reliability.md."""
    count, by_kind = len(history.requests), Counter(problem.kind for problem in problems)
    rows = sum(len(request.rows) for request in history.requests)
    changes = Counter(change.outcome for change in history.changes)
    longest = max((r.answered - r.sent for r in history.requests if not r.error), default=0.0)
    lines = [
        f"{count:,} requests of {rows:,} rows (seed {seed}, {CLIENTS} clients over HTTP and gRPC) through "
        f"{len(history.changes)} promotes ({', '.join(f'{n} {o.value}' for o, n in changes.items())}) and "
        f"{len(history.outages)} outages. {checker.excused(history):,} requests met a server that was down "
        f"or a model whose process was killed; the longest wait for an answer was {longest:.1f} s.",
        "",
        "| what must not be | requests |",
        "|---|---:|",
        *(f"| {kind.value} | {by_kind[kind]} |" for kind in Kind),
        "",
        "| disturbance | times |",
        "|---|---:|",
        *(f"| {name} | {times} |" for name, times in sorted(chaos.done.items())),
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.history", description="Is none lost?")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="document whose section is replaced")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        history, chaos = run(Path(folder), options.requests, options.seed)
    problems = checker.check(history)
    text = document(history, chaos, problems, options.seed)
    print(text, *problems[:50], *chaos.remarks, sep="\n")
    if options.output:
        section(options.output, "history", text)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
