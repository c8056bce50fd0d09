"""A sample of ``make reliability``: some system calls of each command fail, some are the last one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reliability.scenarios import SCENARIOS

ROOT = Path(__file__).resolve().parents[2]
COMMITS = "commit"
"""A killed git leaves locks of its own: docs/reliability.md says which."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.name for each in SCENARIOS if not each.name.startswith(COMMITS)])
def test_what_a_fault_leaves_is_old_new_or_repaired(name: str) -> None:
    argv = [sys.executable, "-m", "tests.reliability.system_calls", "--only", name, "--sample", "20"]
    path = os.pathsep.join(str(ROOT / part) for part in (".", "tests", "tests/support"))
    done = subprocess.run(
        argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
