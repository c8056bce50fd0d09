"""docs/metrics.md has one row for each metric that the code inside the server declares."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from triton_repo_builder.base import resources

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
KINDS = {"counter": "counter", "labelled": "counter", "histogram": "histogram", "gauge": "gauge"}
REFUSALS = {"Refused", "BadImage", "BadAudio", "refuse"}
COLUMNS = 6


def calls() -> Iterator[tuple[str, list[ast.expr], dict[str, str]]]:
    """(name of the function, arguments, texts by the name of their constant) of each call in ``runtime/``."""
    for file in resources.runtime("").rglob("*.py"):
        tree = ast.parse(file.read_text())
        texts: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                target, value = node.targets[0], node.value
                both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
                pairs = zip(target.elts, value.elts, strict=True) if both else [(target, value)]  # type: ignore[attr-defined]
                texts |= {
                    name.id: text.value
                    for name, text in pairs
                    if isinstance(name, ast.Name) and isinstance(text, ast.Constant)
                }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield getattr(node.func, "attr", getattr(node.func, "id", "")), node.args, texts


def declared() -> set[tuple[str, str]]:
    """(name, type) of each metric."""
    metrics = set()
    for function, arguments, texts in calls():
        if function in KINDS and arguments:
            name = arguments[0]
            text = texts.get(name.id) if isinstance(name, ast.Name) else getattr(name, "value", None)
            if isinstance(text, str) and text.startswith("trb_"):
                metrics.add((text, KINDS[function]))
    return metrics


def rows() -> list[list[str]]:
    """Cells of the tables of metrics."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `trb_")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_each_metric_has_one_row() -> None:
    listed = [(row[0].strip("`"), row[1]) for row in rows()]
    assert sorted(listed) == sorted(declared())


def test_each_row_has_all_columns_and_a_query_of_its_metric() -> None:
    for row in rows():
        assert len(row) == COLUMNS, row
        assert all(row[column] for column in (0, 1, 2, 4, 5)), row
        assert row[0].strip("`") in row[5]


def test_each_word_for_a_refusal_is_explained() -> None:
    words = {
        constant.value
        for function, arguments, _ in calls()
        if function in REFUSALS and len(arguments) == 2
        for constant in ast.walk(arguments[1])
        if isinstance(constant, ast.Constant)
    }
    section = PAGE.read_text().partition("## Why was a text")[2].partition("\n## ")[0]
    cells = [line.split(" | ")[0] for line in section.splitlines()]
    assert words == {word for cell in cells for word in re.findall(r"`(\w+)`", cell)} - {"reason"}
