"""The deliberate faults of ``make faults`` still fit the code and the everyday tests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.faults.faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
OTHER_TIERS = ("mark.slow", "mark.docker", "mark.exported")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_it_has_one_place_and_everyday_tests(fault: Fault) -> None:
    assert (ROOT / "triton_repo_builder" / fault.file).read_text().count(fault.old) == 1
    assert fault.tests
    for test in fault.tests:
        file, name = test.split("::")
        module = ast.parse((ROOT / file).read_text())
        (function,) = (
            node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == name
        )
        marks = [ast.unparse(mark) for mark in function.decorator_list]
        marks += [ast.unparse(node) for node in module.body if ast.unparse(node).startswith("pytestmark")]
        assert not [mark for mark in marks if any(tier in mark for tier in OTHER_TIERS)]


def test_every_fault_is_in_the_documents_table() -> None:
    table = (ROOT / "docs" / "testing.md").read_text()
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)
    assert [
        fault.id for fault in FAULTS if f"| {fault.id} | {fault.area} | {fault.what} |" not in table
    ] == []
