"""The counts of docs/deploy-canary.md: a canary of each kind under load, as rows of a table.

PYTHONPATH=.:tests:tests/support python -m tests.reliability.canary
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support.canaries import FAILING, GOOD, OTHER, OTHER_GOLDEN, SLOW, load, stage
from tests.support.cli import ARGV

SETTLED = 3.0
"""Seconds of load before and after each canary."""


def main() -> None:
    """One canary of each kind under load, as rows of a table."""
    print("| version | exit code | end | requests | failed by the model | lost | back after |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder)) as everything:
        for behaviour in (GOOD, FAILING, SLOW, OTHER, OTHER_GOLDEN):
            everything.behaviour.write_text(behaviour)
            with load(everything.traefik) as counted:
                time.sleep(SETTLED)
                done = subprocess.run(
                    [*ARGV, *everything.arguments(), "--json"], capture_output=True, text=True, check=False
                )
                time.sleep(SETTLED)
            result = json.loads(done.stdout)
            percent = result["history"][-1]["percent"]
            back = "-" if result["result"] == "promoted" else f"{result['back_s']:.1f} s"
            if result["first_bad_s"] is not None:
                back += f" ({result['first_bad_s']:.1f} s after the first bad request)"
            cells = (
                behaviour,
                str(done.returncode),
                f"{result['result']} at {percent} %",
                f"{sum(counted.sent.values()):,}",
                str(len(counted.failures) - len(counted.lost())),
                str(len(counted.lost())),
                back,
            )
            print(f"| {' | '.join(cells)} |", flush=True)
            print(f"    {result['reason']}", flush=True)
            command = [*ARGV, "canary", "abort", "--routes", str(everything.file)]
            subprocess.run(command, capture_output=True, check=True)


if __name__ == "__main__":
    main()
