"""System calls of ``promote --url`` and ``apply`` fail, or are the last; a server runs.

    PYTHONPATH=.:tests:tests/support python -m tests.reliability.live_calls [--only NAME] [--sample N]

As ``system_calls``, with a real tritonserver that runs from the repository. After a failure both, the files
and what is loaded, have to be as before; after a kill the next command, which is the same one or the one
back, has to lead both to where it always leads. In between every answer is the old version's or the new's.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tiny
import two_versions

from tests.reliability import forked, strace
from tests.reliability.judge import ERRORS, KILL
from tests.reliability.report import commit, section
from tests.support.cli import trb
from tests.support.serve_repository import serve
from triton_repo_builder.base.errors import Exit
from triton_repo_builder.run.client import HttpClient, ready_versions

REPO, NAME = "repo", "sentiment"
PARTS = (f"{REPO}/", REPO, f".{REPO}.trb-")
SEED = 0
_NOW = ("--url", "{http}", "--grpc-url", "{grpc}", "--no-preflight")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A command that changes what a server serves, and the one that takes it back."""

    name: str
    forth: tuple[str, ...]
    back: tuple[str, ...]


_PROMOTE = ("promote", NAME, REPO, *_NOW)
SCENARIOS = (
    Scenario(name="promote --url", forth=(*_PROMOTE, "--version", "2"), back=(*_PROMOTE, "--version", "1")),
    Scenario(name="apply", forth=("apply", "./two", *_NOW), back=("apply", "./one", *_NOW)),
)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One fault at one call."""

    call: strace.Call
    fault: str
    options: tuple[str, ...]
    """strace's."""


@dataclass(frozen=True, kw_only=True)
class State:
    """The folder, and the server that runs from it."""

    files: str
    loaded: str
    answers: int
    """Of which model: 1 or 2; 0 for anything else."""


@dataclass(kw_only=True)
class Row:
    """What a command came to."""

    name: str
    calls: int
    of: int
    faults: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class Live:
    """A folder with the old and the new, and a server that runs from it."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self._folder, self.root, self.scenario = folder, folder / "run", scenario
        for name in ("tmp", "home"):
            (self.root / name).mkdir(parents=True)
        first, second = two_versions.make(self.root / "models")
        for name, model in (("one", first), ("two", second)):
            tiny.put(model, self.root / name, golden=True)
        self._scores = {n: _golden(self.root / name / NAME) for n, name in ((1, "one"), (2, "two"))}
        shutil.copytree(self.root / "one", self.root / "start")
        if "promote" in scenario.name:
            trb("build", "--model", second, "--output", self.root / "start", "--version", "next")

    @contextmanager
    def serving(self) -> Iterator[None]:
        """A fresh folder, and a server."""
        for path in (self.root / REPO, *self.root.glob(f".{REPO}.trb-*")):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.root / "start", self.root / REPO)
        with serve(self._folder, self.root / REPO, "--json", "--engine=embedded") as running:
            self._urls = running.ready()["urls"]
            yield

    def run(self, argv: Sequence[str], options: Sequence[str] = ()) -> forked.Ended:
        """One ``trb``, under strace if there are options."""
        home = {"TMPDIR": str(self.root / "tmp"), "HOME": str(self.root / "home")}
        filled = [word.format(**self._urls) for word in argv]
        return forked.trb(filled, self.root, env=home, options=options)

    def look(self) -> State:
        """What manifest.json says of the version before is left out: it differs after the way back."""
        found: dict[str, Any] = {**tiny.tree(self.root / REPO)}
        manifest = json.loads((self.root / REPO / "manifest.json").read_text())
        for endpoint in manifest["endpoints"].values():
            endpoint.pop("previous", None)
        found["manifest.json"] = json.dumps(manifest, sort_keys=True)
        loaded = ready_versions(HttpClient(self._urls["http"], 30).index())
        return State(
            files=json.dumps(found, sort_keys=True),
            loaded=json.dumps(loaded, sort_keys=True),
            answers=self.answers(),
        )

    def answers(self) -> int:
        """Whose answers the server gives."""
        asked = {text: self._ask(text) for text in self._scores[1] if text}
        for number, scores in self._scores.items():
            if all(np.allclose(asked[text], scores[text], atol=1e-4) for text in asked):
                return number
        return 0

    def _ask(self, text: str) -> list[float]:
        body = {"inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [text]}]}
        request = urllib.request.Request(
            f"{self._urls['http']}/v2/models/{NAME}/infer", json.dumps(body).encode()
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            outputs = {each["name"]: each["data"] for each in json.load(response)["outputs"]}
        scores: list[float] = outputs["scores"]
        return scores


def _golden(endpoint: Path) -> dict[str, list[float]]:
    """Text → scores of the original model."""
    found = {}
    for case in json.loads((endpoint / "smoke.json").read_text())["cases"]:
        if [item["name"] for item in case["inputs"]] == ["TEXT"]:
            scores = next(item for item in case["outputs"] if item["name"] == "scores")
            found[case["inputs"][0]["data"][0]] = list(np.array(scores["data"]).ravel())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.live_calls", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="scenarios whose name begins so")
    parser.add_argument(
        "--sample", type=int, default=0, metavar="N", help="N faults of each, drawn by chance"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="Markdown file whose section is replaced")
    arguments = parser.parse_args()
    forked.find_strace()
    forked.warm()
    rows = []
    for scenario in SCENARIOS:
        if not arguments.only or scenario.name.startswith(tuple(arguments.only)):
            with tempfile.TemporaryDirectory(prefix="trb-live-") as folder:
                rows.append(run(Path(folder), scenario, arguments.sample))
    text = table(rows)
    print(text)
    if arguments.output:
        section(arguments.output, "live-calls", text)
    return 1 if any(row.findings for row in rows) else 0


def run(folder: Path, scenario: Scenario, sample: int = 0) -> Row:
    """The faults of one command one after the other, on one server; on a new one after a finding."""
    begun = time.monotonic()
    live = Live(folder, scenario)
    with live.serving():
        points = _points(live)
        ends = _ends(live)
    row = Row(name=scenario.name, calls=len({point.call for point in points}), of=len(points))
    if sample and sample < len(points):
        points = random.Random(SEED).sample(points, sample)
    while points:
        with live.serving():
            found = False
            while points and not found:
                point = points.pop()
                row.faults[KILL if point.fault == KILL else "error"] += 1
                left, finding = _one(live, point, ends, again=len(points) % 2 == 0)
                row.left[left] += 1
                if finding:
                    found = True
                    row.findings[finding] += 1
                    print(f"{row.name}: {point.fault} at {point.call.text}: {finding}", file=sys.stderr)
                    print((folder / "stderr").read_text()[-2000:], file=sys.stderr)
    row.seconds = time.monotonic() - begun
    print(_line(row), file=sys.stderr, flush=True)
    return row


def _points(live: Live) -> list[Point]:
    """Every fault of the calls that change the repository."""
    _ends(live)  # the first way forth and back leaves the manifest as all others do
    ended = live.run(live.scenario.forth, ["-f", "-y", "-s", "0", "-e", f"trace={','.join(strace.CALLS)}"])
    if ended.code:
        raise SystemExit(f"{live.scenario.name}: exits {ended.code} under strace:\n{ended.output}")
    recorded = strace.calls(ended.log, str(live.root), PARTS)
    if len({call.pid for call in recorded}) != 1:
        raise SystemExit(
            f"{live.scenario.name}: no call, or calls of other threads, which no fault would reach"
        )
    live.run(live.scenario.back)
    everything = strace.calls(ended.log, str(live.root), PARTS, names=(*strace.CALLS, "read"))
    whats = {**{error: f"error={error}" for error in ERRORS}, KILL: "signal=KILL"}
    return [
        Point(call=call, fault=fault, options=tuple(strace.fault(call, everything, what, str(live.root))))
        for call in recorded
        for fault, what in whats.items()
    ]


def _ends(live: Live) -> tuple[State, State]:
    """The new state and the old one, to which it goes back."""
    states = []
    for argv in (live.scenario.forth, live.scenario.back):
        ended = live.run(argv)
        if ended.code:
            raise SystemExit(f"trb {' '.join(argv)} exits {ended.code}:\n{ended.output}")
        states.append(live.look())
    new, old = states
    assert (old.answers, new.answers) == (1, 2)
    return old, new


def _one(live: Live, point: Point, ends: tuple[State, State], *, again: bool) -> tuple[str, str]:
    """What one fault left (``old``, ``new``, ``between``, ``missed``), and the finding, or nothing."""
    old, new = ends
    call, killed = point.call, point.fault == KILL
    ended = live.run(live.scenario.forth, point.options)
    happened = ended.code == forked.KILLED if killed else "(INJECTED)" in ended.log
    if not (happened and strace.reached(ended.log, call, str(live.root))):
        left, finding = "missed", ""
    else:
        state = live.look()
        left = {old: "old", new: "new"}.get(state, "between")
        finding = (
            _after_kill(live, ends, state, again=again)
            if killed
            else _after_failure(ended, point.fault, left)
        )
    if not finding:
        back = live.run(live.scenario.back)
        if back.code or live.look() != old:
            finding = f"the way back afterwards leads elsewhere (exit {back.code}): {_last(back.output)}"
    return left, finding


def _after_failure(ended: forked.Ended, error: str, left: str) -> str:
    if ended.code < 0 or ended.code == Exit.BUG or "Traceback" in ended.output:
        return f"ends with {ended.code}: {_last(ended.output)}"
    if ended.code == 0:
        return "" if left == "new" else f"exits 0, and leaves what is {left}"
    if not ERRORS[error].search(ended.output):
        return f"the message does not name the cause: {_last(ended.output)}"
    return "" if left == "old" else f"exits {ended.code}, and leaves what is {left}: {_last(ended.output)}"


def _after_kill(live: Live, ends: tuple[State, State], state: State, *, again: bool) -> str:
    if not state.answers:
        return "answers of neither version"
    checked = live.run(("check", REPO))
    if checked.code and "between two states" not in checked.output:
        return f"trb check afterwards: {_last(checked.output)}"
    ended = live.run(live.scenario.forth if again else live.scenario.back)
    if ended.code:
        return f"the next command exits {ended.code}: {_last(ended.output)}"
    if live.look() != ends[again]:
        return f"the next command leads elsewhere: {_last(ended.output)}"
    return ""


def _last(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith("error")] or output.splitlines()
    return (lines or ["no message"])[-1][:200]


def table(rows: Sequence[Row]) -> str:
    """The section of docs/reliability.md."""
    lines = [
        "| command | calls | tried | failures | kills | old | new | between | not reached | findings | s |",
        "|---|" + "---:|" * 10,
        *map(_line, rows),
    ]
    listed = [f"- {row.name}: {text} ({count} ×)" for row in rows for text, count in row.findings.items()]
    return "\n".join([*lines, "", f"At commit {commit()}.", *([""] if listed else []), *listed])


def _line(row: Row) -> str:
    numbers = (
        *(row.calls, f"{sum(row.faults.values())} of {row.of}", row.faults["error"], row.faults[KILL]),
        *(row.left[kind] for kind in ("old", "new", "between", "missed")),
        *(sum(row.findings.values()), f"{row.seconds:,.0f}"),
    )
    return f"| {row.name} | " + " | ".join(map(str, numbers)) + " |"


if __name__ == "__main__":
    sys.exit(main())
