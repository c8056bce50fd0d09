"""``make soak``: half an hour of mixed load with promotes, dead processes and hostile requests.

    python -m tests.reliability.soak [--minutes 30] [--seed 0] [--output docs/reliability.md]

The endpoints, clients and checker are those of ``history``. The server is never restarted: its memory, that
of all its processes together, is what the slope is taken of.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from tests.reliability import checker, history
from tests.reliability.checker import History
from tests.reliability.history import Chaos
from tests.reliability.hostile import Hostile
from tests.reliability.recording_clients import Clients
from tests.reliability.report import commit, section
from tests.support.serve_repository import children
from triton_repo_builder.run.serve.processes.watchdog import WINDOW

KINDS = ("promote", "rollback", "stub")
EVERY = 5.0
"""Seconds between two looks at the memory."""
JOINED = "incomplete string data for inference input"
"""Triton's Python backend refuses a request whose lengths are wrong, and with it the batch that it is in."""
SETTLED = 0.2
"""Share of the time after which the slope begins: caches and pools are filled first."""


class Memory(threading.Thread):
    """MiB of all processes of a server together, each page counted once (PSS), by seconds."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, float]] = []
        self._pid, self._end, self._begun = pid, threading.Event(), time.monotonic()

    def __enter__(self) -> Memory:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join()

    def run(self) -> None:
        """Look until the end."""
        while not self._end.wait(EVERY):
            with suppress(FileNotFoundError):  # the server has ended
                pages = sum(map(_share, [self._pid, *children(self._pid)]))
                self.samples.append((time.monotonic() - self._begun, pages / 1024))

    @property
    def slope(self) -> float:
        """MiB per hour by least squares, over the settled part."""
        last = self.samples[-1][0]
        settled = [sample for sample in self.samples if sample[0] > SETTLED * last]
        seconds, mebibytes = np.array(settled).T
        return float(np.polyfit(seconds / 3600, mebibytes, 1)[0])


def _share(pid: int) -> int:
    """KiB; 0 for a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def run(folder: Path, minutes: float, seed: int) -> tuple[History, Chaos, Hostile, Memory]:
    """All of it at once, for so many minutes."""
    repository, asked = history.build(folder)
    rng = random.Random(seed)
    chaos = Chaos(folder, repository, rng)
    try:
        at = (f"http://127.0.0.1:{chaos.http}", f"127.0.0.1:{chaos.grpc}")
        with (
            Clients(*at, asked, history.CLIENTS, seed) as clients,
            Hostile(chaos.http, seed) as hostile,
            Memory(chaos.pid) as memory,
        ):
            end, killed = time.monotonic() + 60 * minutes, -WINDOW
            while time.monotonic() < end:
                kind = rng.choice(KINDS)
                if kind == "stub":
                    # A model that dies again and again in this time is given up, as it should be.
                    kind = "stub" if time.monotonic() - killed > WINDOW else "promote"
                    killed = time.monotonic() if kind == "stub" else killed
                chaos.act(kind)
                time.sleep(rng.uniform(0, 10))
                print(f"{len(clients.requests)} requests, {memory.samples[-1:]}", file=sys.stderr, flush=True)
        for kind in hostile.killers:
            answer = hostile.send(kind)
            hostile.answers[kind, f"{answer}, the server {'ended' if chaos.ended() else 'goes on'}"] += 1
    finally:
        chaos.stop()
    made = History(
        first={"text": 1, "net": 1},
        requests=clients.requests,
        changes=chaos.changes,
        outages=chaos.outages,
    )
    return made, chaos, hostile, memory


def document(
    made: History,
    chaos: Chaos,
    hostile: Hostile,
    memory: Memory,
    problems: Sequence[checker.Problem],
    joined: int,
    minutes: float,
) -> str:
    """The section of docs/reliability.md."""
    rows = sum(len(request.rows) for request in made.requests)
    sizes = [size for _, size in memory.samples]
    done = ", ".join(f"{times} × {name}" for name, times in sorted(chaos.done.items()) if ":" not in name)
    lines = [
        f"{minutes:g} minutes at commit {commit()}: "
        f"{len(made.requests):,} requests of {rows:,} rows, {done}; "
        f"{len(problems)} requests lost, mixed, wrong or stale; {joined} refused because a malformed one was "
        f"in their batch. Memory of the server's processes: "
        f"{sizes[0]:,.0f} MiB at the start, at most {max(sizes):,.0f}, {sizes[-1]:,.0f} at the end; over "
        f"the last {1 - SETTLED:.0%} of the time it grew by {memory.slope:+,.0f} MiB per hour.",
        "",
        "| hostile request | answers |",
        "|---|---|",
    ]
    for kind in (*hostile.kinds, *hostile.killers):
        seen = {answer: times for (name, answer), times in sorted(hostile.answers.items()) if name == kind}
        lines.append(f"| {kind} | {', '.join(f'{answer}: {times}' for answer, times in seen.items())} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.soak", description="Does it hold?")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="document whose section is replaced")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made, chaos, hostile, memory = run(Path(folder), options.minutes, options.seed)
    found = checker.check(made)
    problems = [problem for problem in found if JOINED not in problem.request.error]
    joined = len(found) - len(problems)
    text = document(made, chaos, hostile, memory, problems, joined, options.minutes)
    print(text, *problems[:50], *chaos.remarks, sep="\n")
    if options.output:
        section(options.output, "soak", text)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
