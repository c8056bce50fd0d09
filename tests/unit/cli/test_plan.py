"""``trb plan``: what it says of the measurements that it is given."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.cli import call
from tests.support.docs_blocks import ROOT


def test_a_note_of_the_measurement_goes_with_the_plan(tmp_path: Path) -> None:
    report = json.loads((ROOT / "examples/tuned_sleeper/report.json").read_text())
    note = "other programs used 70% of this machine's CPU in the median trial: run it again alone"
    file = tmp_path / "report.json"
    file.write_text(json.dumps({**report, "notes": [note]}))
    done = call("plan", file, "--rps", "500", "--slo", "p99=200ms")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"note: report.json: {note}") == 1
