"""Facts of the machine."""

from __future__ import annotations

from pathlib import Path

from triton_repo_builder.measure.bench.measure import machine


def test_facts_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A Fast One\n")
    (tmp_path / "meminfo").write_text("MemTotal:       16777216 kB\n")
    facts = machine.facts(tmp_path)
    assert (facts["cpu"], facts["memory_gib"]) == ("A Fast One", 16.0)
    assert machine.facts(tmp_path / "nowhere")["memory_gib"] is None
    assert {"python", "numpy"} <= machine.versions().keys()
