"""``make reliability``: each system call that changes files fails, or is the last one; what is left then?

    PYTHONPATH=.:tests:tests/support python -m tests.reliability.system_calls [--only NAME] [--sample N]

strace records a command's calls to the repository, its staging folders and git's folder. Then the command
runs again for each of them, with strace making that call fail (ENOSPC, EIO, EACCES), killing the process
there (KILL), or killing it after a rename with all lost that was written before and not synced (LOST).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.reliability import forked, scenarios, strace
from tests.reliability.judge import ERRORS, KILL, LOST, Judge, Known, Verdict
from tests.reliability.report import commit, section
from tests.reliability.rows import Row, keep, read, table
from tests.reliability.scenarios import Scenario
from tests.reliability.strace import Call

WORKERS = 2


@dataclass(frozen=True, kw_only=True)
class Point:
    """One fault: a call of ``trb`` itself, or of the git process with this number that it starts."""

    call: Call
    fault: str
    turn: int = 0
    lost: tuple[str, ...] = ()
    """For LOST: files from the run's folder that are empty after the power cut."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A scenario with its base folder, its good states and all its faults."""

    scenario: Scenario
    base: Path
    judge: Judge
    points: tuple[Point, ...]
    renames: int
    """Renames of ``trb`` itself, each looked at for what was not synced before."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.system_calls", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="scenarios whose name begins so")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="N faults of each, spread evenly")
    parser.add_argument("--faults", default="", metavar="KIND,…", help="only these kinds of faults")
    parser.add_argument("--jobs", type=int, default=WORKERS, metavar="N", help="faults at the same time")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="keeps what each command came to")
    parser.add_argument("--anew", action="store_true", help="do not go on from what is kept")
    parser.add_argument("--output", type=Path, metavar="FILE", help="Markdown file whose section is replaced")
    arguments = parser.parse_args()
    chosen = [
        s for s in scenarios.SCENARIOS if not arguments.only or s.name.startswith(tuple(arguments.only))
    ]
    rows = {} if arguments.anew else read(arguments.rows)
    run(chosen, rows, arguments)
    shown = [rows[scenario.name] for scenario in scenarios.SCENARIOS if scenario.name in rows]
    text = table(shown, arguments.jobs)
    print(text)
    if arguments.output:
        section(arguments.output, "system-calls", text)
    return 1 if any(row.broken for row in shown) else 0


def run(chosen: Sequence[Scenario], rows: dict[str, Row], arguments: argparse.Namespace) -> None:
    """All faults of these scenarios, or a sample; those that have a whole row of this commit are done."""
    forked.find_strace()
    forked.warm()
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="trb-calls-", dir=memory if memory.is_dir() else None) as folder,
        registry(Path(folder)),
    ):
        for number, scenario in enumerate(chosen):
            kept = rows.get(scenario.name)
            if kept and kept.whole and kept.commit == commit() and not kept.broken:
                continue
            started = time.monotonic()
            prepared = prepare(scenario, Path(folder) / f"s{number}")
            points = [
                p for p in prepared.points if not arguments.faults or p.fault in arguments.faults.split(",")
            ]
            if arguments.sample and len(points) > arguments.sample:
                size = arguments.sample
                points = [points[index * len(points) // size] for index in range(size)]
            verdicts = _all(prepared, points, arguments.jobs)
            _show(scenario.name, verdicts)
            rows[scenario.name] = _counted(prepared, verdicts, time.monotonic() - started)
            print(rows[scenario.name].text, file=sys.stderr, flush=True)
            if arguments.rows:
                keep(arguments.rows, rows, [each.name for each in scenarios.SCENARIOS])
            shutil.rmtree(prepared.base.parent)


@contextmanager
def registry(folder: Path) -> Iterator[None]:
    """A registry on loopback in a process of its own; its address is in the environment."""
    import signal

    from tests.support import small_registry

    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # clients that are killed are no news
        (folder / "registry").mkdir()
        with small_registry.running(folder / "registry") as address:
            os.write(write, address.encode() + b"\n")
            signal.pause()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        os.environ["TRB_REGISTRY"] = stream.readline().strip()
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def prepare(scenario: Scenario, base: Path) -> Prepared:
    """Run the command without a fault: its calls, its states. An empty record ends this process."""
    home = base.parent / f"{base.name}.runs"
    home.mkdir()
    base = home / base.name
    base.mkdir()
    scenarios.sources(base)
    scenarios.prepare(base, scenario.setup)
    recorded = _fresh(base, home / f"{base.name}.record", scenario)
    old = scenarios.look(recorded, scenario)
    argv = scenarios.filled(scenario.argv, recorded)
    # git has a strace of its own: no process can have two.
    follow = [] if scenario.look == "git" else ["-f"]
    options = [*follow, "-y", "-s", "0", "-e", f"trace={','.join(scenario.calls)}"]
    ended = forked.trb(argv, recorded, env=_environment(recorded, "record"), options=options)
    if ended.code:
        raise SystemExit(f"{scenario.name}: exits {ended.code} under strace:\n{ended.output}")
    new = scenarios.look(recorded, scenario)
    points = tuple(_points(scenario, recorded, ended.log))
    again = {_then(recorded, scenario, scenario.argv)}
    passing = []
    for number, command in enumerate(scenario.passing):
        there = _fresh(base, home / f"{base.name}.passing{number}", scenario)
        scenarios.prepare(there, [command])
        passing.append(scenarios.look(there, scenario))
        again.add(_then(there, scenario, scenario.argv))
    known = Known(old=old, new=new, passing=tuple(passing), again=frozenset({new, *again}))
    renames = {point.call for point in points if point.turn == 0 and point.call.name in strace.RENAMES}
    judge = Judge(scenario, known)
    return Prepared(scenario=scenario, base=base, judge=judge, points=points, renames=len(renames))


def _then(root: Path, scenario: Scenario, argv: Sequence[str]) -> scenarios.State:
    forked.trb(scenarios.filled(argv, root), root, env=scenarios.environment(root))
    return scenarios.look(root, scenario)


def _fresh(base: Path, target: Path, scenario: Scenario) -> Path:
    scenarios.copied(base, target)
    scenarios.prepare(target, scenario.each)
    return target


def _environment(root: Path, target: str, options: Sequence[str] = ()) -> dict[str, str]:
    """With a git before the real one on the path, which starts the real one under strace at its turn."""
    wrapper = Path(__file__).parent / "bin"
    return {
        **scenarios.environment(root),
        "PATH": f"{wrapper}:{os.environ['PATH']}",
        "TRB_GIT": shutil.which("git") or "git",
        "TRB_GIT_LOGS": f"{root}.git",
        "TRB_GIT_TURN": target,
        "TRB_GIT_STRACE": " ".join(options),
    }


def _points(scenario: Scenario, root: Path, log: str) -> Iterator[Point]:
    """Every fault of a record."""
    everything = strace.calls(log, str(root), scenario.parts, names=scenario.calls)
    main = next((call.pid for call in everything), 0)
    own = [call for call in everything if call.pid == main]
    # trb check has ONNX Runtime read graphs in another process; if that fails, ONNX's inference is taken.
    if not all(path.endswith(".onnx") for call in everything if call.pid != main for path in call.paths):
        raise SystemExit(f"{scenario.name}: calls of other threads or processes, which no fault would reach")
    logs = sorted(Path(f"{root}.git").glob("log.*"), key=lambda file: int(file.suffix[1:]))
    turns = {int(file.suffix[1:]): file.read_text(errors="replace") for file in logs}
    others = {
        turn: strace.calls(text, str(root), scenario.parts, names=scenario.calls)
        for turn, text in turns.items()
    }
    if not own or (scenario.look == "git" and not any(others.values())):
        raise SystemExit(f"{scenario.name}: strace recorded no call at all: is it allowed to trace here?")
    for turn, calls in {0: own, **others}.items():
        for call in calls:
            if call.name not in strace.NETWORK:
                yield from (Point(call=call, fault=error, turn=turn) for error in ERRORS)
            yield Point(call=call, fault=KILL, turn=turn)
    if scenario.look != "remote":
        yield from _losses(own, root)


def _losses(own: Sequence[Call], root: Path) -> Iterator[Point]:
    """A power cut after each rename, and after the end: what was not synced before is empty."""
    for index, call in enumerate(own):
        last = index + 1 == len(own)
        if call.failed or not (call.name in strace.RENAMES or last):
            continue
        lost = tuple(sorted(os.path.relpath(path, root) for path in strace.dirty(own[: index + 1])))
        if lost:
            yield Point(
                call=own[index + 1] if not last else call, fault=LOST, lost=(*lost, "end") if last else lost
            )


def _all(prepared: Prepared, points: Sequence[Point], jobs: int) -> list[tuple[Point, Verdict]]:
    global _prepared
    _prepared = prepared
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        return list(pool.imap(_one, list(enumerate(points)), chunksize=4))


_prepared: Prepared


def _one(numbered: tuple[int, Point]) -> tuple[Point, Verdict]:
    number, point = numbered
    prepared, scenario = _prepared, _prepared.scenario
    root = _fresh(prepared.base, prepared.base.with_name(f"{prepared.base.name}.{number}"), scenario)
    try:
        return point, _broken(point, root, prepared.judge, scenario)
    finally:
        for path in root.parent.glob(f"{root.name}*"):
            if path.name.split(".")[:2] == root.name.split(".")[:2]:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _broken(point: Point, root: Path, judge: Judge, scenario: Scenario) -> Verdict:
    call, killed = point.call, point.fault in (KILL, LOST)
    what = "signal=KILL" if killed else f"error={point.fault}"
    options = ["-y", "-s", "0", "-e", f"trace={call.name}"]
    if "end" not in point.lost:
        options += ["-e", f"inject={call.name}:{what}:when={call.number}"]
    own = options if point.turn == 0 else ()
    target = str(point.turn) if point.turn else "none"
    env = _environment(root, target, options if point.turn else ())
    ended = forked.trb(scenarios.filled(scenario.argv, root), root, env=env, options=own)
    if killed:
        if ended.code != forked.KILLED and "end" not in point.lost:
            return Verdict(missed=True)
        for path in point.lost:
            if (root / path).is_file() and path != "end":
                os.truncate(root / path, 0)
        return judge.left(root)
    log = ended.log if point.turn == 0 else _read(Path(f"{root}.git") / f"log.{point.turn}")
    if "(INJECTED)" not in log:
        return Verdict(missed=True)
    return judge.failed(root, ended, point.fault)


def _read(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


def _show(name: str, verdicts: Sequence[tuple[Point, Verdict]]) -> None:
    """What a person needs to follow a finding up."""
    seen: Counter[str] = Counter()
    for point, verdict in verdicts:
        for finding in verdict.findings:
            seen[finding] += 1
            if seen[finding] <= 2:
                who = f"git {point.turn}" if point.turn else "trb"
                print(f"{name}: {point.fault} at {who} {point.call.text}: {finding}", file=sys.stderr)
    for finding, count in seen.items():
        if count > 2:
            print(f"{name}: {count} × {finding}", file=sys.stderr)


def _counted(prepared: Prepared, verdicts: Sequence[tuple[Point, Verdict]], seconds: float) -> Row:
    return Row(
        name=prepared.scenario.name,
        commit=commit(),
        calls=len({(point.turn, point.call) for point in prepared.points}),
        tried=len(verdicts),
        of=len(prepared.points),
        kinds=dict(Counter(point.fault if point.fault in (KILL, LOST) else "error" for point, _ in verdicts)),
        renames=prepared.renames,
        left=dict(Counter(verdict.left for _, verdict in verdicts if verdict.left and not verdict.missed)),
        broken=sum(bool(verdict.findings) for _, verdict in verdicts),
        findings=dict(Counter(text for _, verdict in verdicts for text in set(verdict.findings))),
        missed=sum(verdict.missed for _, verdict in verdicts),
        seconds=round(seconds, 1),
    )


if __name__ == "__main__":
    sys.exit(main())
