from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder.base import resources
from triton_repo_builder.repository import reference
from triton_repo_builder.repository.reference import CONFIDENCE, TEXT_TOKENS, Distribution, Reference

REFERENCE = Reference(
    source="texts.txt",
    distributions={
        TEXT_TOKENS: Distribution(texts=3, shares={"4": 0.25, "+Inf": 0.75}),
        "answers": Distribution(texts=2, shares={"größer": 1.0}, model="bert_model"),
    },
)


def test_values_fall_into_the_buckets_of_the_server() -> None:
    shares = reference.histogram(TEXT_TOKENS, [1, 4, 5, 9000])
    assert {name: share for name, share in shares.items() if share} == {"4": 0.5, "8": 0.25, "+Inf": 0.25}
    assert list(shares) == list(reference.buckets(TEXT_TOKENS))
    assert reference.histogram(CONFIDENCE, [0.95, 0.951])["0.99"] == 0.5


def test_the_buckets_are_those_of_the_code_in_the_server() -> None:
    tree = ast.parse(resources.runtime("metrics.py").read_text())
    constants = {
        node.targets[0].id: ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for name, metric in (("TEXT_TOKENS", TEXT_TOKENS), ("CONFIDENCE", CONFIDENCE)):
        assert tuple(eval(constants[name])) == reference.BOUNDS[metric]
    assert ast.literal_eval(constants["LONGEST"]) == reference.LONGEST_LABEL
    assert ast.literal_eval(constants["OTHER"]) == reference.OTHER


def test_labels_beyond_the_first_are_other() -> None:
    assert reference.shares(("a", "b"), ("a", "a", "c", "d")) == {"a": 0.5, "b": 0, "other": 0.5}
    assert reference.label("x" * 300) == "x" * 100
    assert reference.label("two\nlines") == "other"


def test_the_file_is_read_back(tmp_path: Path) -> None:
    text = reference.dump(REFERENCE)
    (tmp_path / reference.FILE).write_text(text)
    assert reference.load(tmp_path / reference.FILE) == REFERENCE
    assert len(text.splitlines()) == 8, "a metric a line"


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"schema": 2, "source": "", "distributions": {}},
        {"schema": 1, "source": "", "distributions": {"answers": {"texts": 1, "shares": {}}}},
        {"schema": 1, "source": "", "distributions": {"answers": {"texts": 1, "shares": {"a": 2}}}},
        {"schema": 1, "source": "", "distributions": {"answers": {"texts": None, "shares": {"a": 1}}}},
        {"schema": 1, "source": "", "distributions": {"answers": {"shares": {"a": 1}}}},
        {"schema": 1, "source": "", "distributions": {"answers": []}},
    ],
)
def test_other_documents_are_refused(document: Any, tmp_path: Path) -> None:
    (tmp_path / "reference.json").write_text(json.dumps(document))
    with pytest.raises(ValueError):
        reference.load(tmp_path / "reference.json")
