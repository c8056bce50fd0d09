"""A sample of ``make reliability``: some system calls of each command fail, some are the last one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reliability.live_calls import SCENARIOS as LIVE
from tests.reliability.scenarios import SCENARIOS

ROOT = Path(__file__).resolve().parents[2]
COMMITS = "commit"
"""A killed git leaves locks of its own: docs/reliability.md says which."""


def run(module: str, *arguments: str) -> None:
    """A part of the grid; it may have no finding."""
    path = os.pathsep.join(str(ROOT / part) for part in (".", "tests", "tests/support"))
    done = subprocess.run(
        [sys.executable, "-m", f"tests.reliability.{module}", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.name for each in SCENARIOS if not each.name.startswith(COMMITS)])
def test_what_a_fault_leaves_is_old_new_or_repaired(name: str) -> None:
    run("system_calls", "--only", name, "--sample", "20")


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [each.name for each in LIVE])
def test_what_a_fault_leaves_of_a_server_is_settled_by_the_next_command(name: str) -> None:
    run("live_calls", "--only", name, "--sample", "6")
