"""When two answers count as the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOUND = '[{"label": "LOC", "score": 0.8649779558181763, "start": 0}]'


@pytest.mark.parametrize(
    ("name", "old", "new", "same"),
    [
        ("entities", FOUND, FOUND.replace("763", "824"), True),
        ("entities", FOUND, FOUND.replace("LOC", "PER"), False),
        ("entities", FOUND, FOUND.replace(": 0}", ": 1}"), False),
        ("entities", FOUND, "[]", False),
        ("label", "[MASK] 0.5", "[MASK] 0.6", False),
        ("score", 0.8649779558181763, 0.8649779558181824, True),
        ("score", 0.86, 0.87, False),
    ],
)
def test_a_text_of_entities_is_the_same_but_for_its_scores(
    monkeypatch: pytest.MonkeyPatch, name: str, old: Any, new: Any, same: bool
) -> None:
    """Their last digits differ on a GPU; the scores are an output of their own, which is compared."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from gpu_steps import parity

    before, after = ({"one": {name: [[value]]}} for value in (old, new))
    apart = max(parity.differences(before, after, exact=True), default=0.0)
    assert (apart <= 1e-4) is same
