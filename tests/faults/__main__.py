"""``make faults``: put each fault into a copy of this checkout, and see whether its tests notice.

    .venv/bin/python -m tests.faults [F01 F02 …]

First the same tests run without any fault, and must pass. Prints the table of docs/testing.md, and on stderr
what each test said, which should be about the fault.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 900
"""Seconds for the tests of one fault."""
MARK = f"TRB_FAULTS={uuid.uuid4().hex}"
"""In the environment of all that the tests start."""
PASSED, FAILED = 0, 1
FIRST = re.compile(r"^(?:FAILED|ERROR) \S*?::(\w+)", re.MULTILINE)
REASON = re.compile(r"^E   +(.*)", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Do the tests notice?")
    parser.add_argument("ids", nargs="*", metavar="F01")
    ids = parser.parse_args().ids
    if unknown := set(ids) - {fault.id for fault in FAULTS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    chosen = [fault for fault in FAULTS if not ids or fault.id in ids]
    with tempfile.TemporaryDirectory(prefix="trb-faults-") as folder:
        tree = _copy(Path(folder) / "checkout")
        code, output = _pytest(tree, dict.fromkeys(test for fault in chosen for test in fault.tests))
        if code != PASSED:
            print(output)
            return 1
        print("| id | area | fault | before | after | test |\n|---|---|---|---|---|---|")
        escaped = [fault for fault in chosen if not _try(fault, tree)]
        return 1 if escaped else 0


def _try(fault: Fault, tree: Path) -> bool:
    with _applied(fault, tree):
        code, output = _pytest(tree, fault.tests)
    if code not in (PASSED, FAILED):
        print(output)
        raise SystemExit(f"{fault.id}: pytest ended with {code}")
    found = FIRST.search(output)
    print(f"{fault.id}:", *REASON.findall(output)[:2], sep="\n  ", file=sys.stderr)
    test = f"`{found[1]}`" if found else ""
    before, after = ("caught" if caught else "escaped" for caught in (fault.before, code == FAILED))
    print(f"| {fault.id} | {fault.area} | {fault.what} | {before} | {after} | {test} |", flush=True)
    return code == FAILED


@contextmanager
def _applied(fault: Fault, tree: Path) -> Iterator[None]:
    file = tree / "triton_repo_builder" / fault.file
    text = file.read_text()
    file.write_text(text.replace(fault.old, fault.new))
    try:
        yield
    finally:
        file.write_text(text)


def _copy(tree: Path) -> Path:
    """What git knows of this checkout, and what is new."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    return tree


def _pytest(tree: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Exit code and output; without -m, so that only everyday tests run."""
    argv = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-q", "-x", *tests]
    name, _, value = MARK.partition("=")
    # Compiled files are told apart by seconds and size: too coarse here.
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", name: value}
    try:
        done = subprocess.run(
            argv, cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=LIMIT
        )
    finally:
        _end_leftovers()
    return done.returncode, done.stdout.decode(errors="replace")


def _end_leftovers() -> None:
    """End the servers that a fault left behind."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if MARK.encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
