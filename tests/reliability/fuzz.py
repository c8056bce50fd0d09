"""``make fuzz``: feed damaged files to every reader, and see whether it succeeds or gives one ``TrbError``.

    PYTHONPATH=. .venv/bin/python -m tests.reliability.fuzz [--executions N] [--only READER] [--jobs N]

Each reader runs in a process of its own, with a limit of memory; a process that dies or hangs is started
again after the input that did it. A finding is made smaller and saved in tests/data/fuzz/; exit code 1.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.reliability.readers import READERS
from tests.reliability.report import ROOT, commit, section
from tests.reliability.session import Failure, Session, limit_memory, memory

SEEDS = ROOT / "tests" / "data" / "fuzz"
SECONDS = 20
"""For one execution, on a busy machine."""
MEMORY = 1 << 30
"""Bytes of address space for the executions of one reader, beside what its libraries take."""
ONCE = 128 << 20
"""Bytes that one execution may add to the most that its process ever had."""
LEAST = 100
"""Executions of each reader."""


@dataclass(kw_only=True)
class Outcome:
    """One reader's executions."""

    reader: str
    executions: int = 0
    seconds: float = 0.0
    memory: int = 0
    """Most bytes of the process, its libraries included."""
    findings: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """(what, the input) by cause."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.reliability.fuzz", description="Fuzz every reader."
    )
    parser.add_argument("--seed", default="1", help="of the random numbers")
    parser.add_argument("--executions", type=int, default=1_000_000, help="of all readers together")
    parser.add_argument("--only", action="append", choices=sorted(READERS), help="repeatable")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path, help="file whose section 'fuzz' becomes the table")
    parser.add_argument("--save", type=Path, default=SEEDS, help="folder for inputs of findings")
    options = parser.parse_args(argv)
    names = options.only or sorted(READERS, key=lambda name: READERS[name].share)
    shares = sum(READERS[name].share for name in names)
    counts = {
        name: max(LEAST, math.ceil(options.executions * READERS[name].share / shares)) for name in names
    }
    begun = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(_reader, name, counts[name], options.seed, options.save) for name in names]
        outcomes = [run.result() for run in runs]
    outcomes.sort(key=lambda outcome: list(READERS).index(outcome.reader))
    text = _table(outcomes, options, time.monotonic() - begun)
    print(text)
    if options.output:
        section(options.output, "fuzz", text)
    return 1 if any(outcome.findings for outcome in outcomes) else 0


def _reader(name: str, count: int, seed: str, save: Path) -> Outcome:
    """All executions of one reader, in as many processes as it takes."""
    outcome = Outcome(reader=name)
    begun = time.monotonic()
    context = multiprocessing.get_context("spawn")
    while outcome.executions < count:
        ours, theirs = context.Pipe()
        at = context.Value("q", outcome.executions)
        worker = context.Process(target=_work, args=(name, outcome.executions, count, seed, theirs, at))
        worker.start()
        theirs.close()
        _listen(worker, ours, at, outcome)
        worker.join()
        outcome.executions = count if worker.exitcode == 0 else at.value + 1
        if worker.exitcode:
            how = f"process ended with {worker.exitcode}, at execution {at.value}"
            with tempfile.TemporaryDirectory() as folder:
                data = Session(READERS[name], Path(folder)).input(seed, at.value)
            outcome.findings.setdefault(f"died {worker.exitcode}", (how, data))
    outcome.seconds = time.monotonic() - begun
    for key, (text, data) in outcome.findings.items():
        file = save / name / hashlib.sha256(key.encode()).hexdigest()[:12]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        print(f"{name}: {key}\n  {text}\n  {file}", flush=True)
    print(f"{name}: {outcome.executions} in {outcome.seconds:.0f} s", flush=True)
    return outcome


def _listen(worker: Any, pipe: Any, at: Any, outcome: Outcome) -> None:
    """Take findings until the process ends; kill one that stands still in native code."""
    before, since = -1, time.monotonic()
    while True:
        try:
            if pipe.poll(1):
                key, text, data, most = pipe.recv()
                outcome.memory = max(outcome.memory, most)
                if key:
                    outcome.findings.setdefault(key, (text, data))
                since = time.monotonic()
        except EOFError:
            return
        if at.value != before:
            before, since = at.value, time.monotonic()
        elif time.monotonic() - since > 3 * SECONDS:
            worker.kill()
            return


def _work(name: str, first: int, count: int, seed: str, pipe: Any, at: Any) -> None:
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "RUST_BACKTRACE": "0"}
    sys.dont_write_bytecode = True
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    reader = READERS[name]
    with tempfile.TemporaryDirectory(prefix="trb-fuzz-") as folder:
        session = Session(reader, Path(folder), SECONDS)
        for data in session.seeds[:20]:  # imports, and caches
            session.run(data)
        limit_memory(MEMORY)
        known: set[str] = set()
        for number in range(first, count):
            at.value = number
            data = session.input(seed, number)
            before = memory()
            failure = session.run(data)
            if (more := memory() - before) > ONCE and failure is None:
                failure = Failure(key="memory", text=f"takes {more >> 20} MiB at once")
            if failure is not None and failure.key not in known:
                known.add(failure.key)
                pipe.send((failure.key, failure.text, session.smaller(data, failure.key), memory()))
            elif number % 1000 == 0:
                pipe.send(("", "", b"", memory()))
        pipe.send(("", "", b"", memory()))


def _table(outcomes: Sequence[Outcome], options: argparse.Namespace, seconds: float) -> str:
    total = sum(outcome.executions for outcome in outcomes)
    lines = [
        f"`make fuzz` at commit {commit()}, seed {options.seed}, {options.jobs} processes: {total:,} "
        f"executions in {seconds / 60:.0f} minutes. Limits: {SECONDS} s for an execution, "
        f"{MEMORY >> 20:,} MiB for a reader "
        "beside its libraries; *memory* includes those.",
        "",
        "| reader | what | executions | findings | seconds | peak memory |",
        "|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        about, findings = READERS[outcome.reader].about, len(outcome.findings)
        lines.append(
            f"| {outcome.reader} | {about} | {outcome.executions:,} | {findings} | {outcome.seconds:.0f} | "
            f"{outcome.memory >> 20} MiB |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
