"""Vectors that a user expects: the file, and the figures of a difference."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.doctor import expected, vector_causes
from triton_repo_builder.measure.doctor.variants import Variant

MEAN = Variant(pooling="mean", normalise=True, prompt="", limit=256)
GOOD = json.dumps({"text": "a", "vector": [1, 0.5]})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "line 2 has no text"),
        ('{"vector": [1, 2]}', "line 2 has no text"),
        ('{"text": "a", "vector": []}', "line 2 has no vector of finite numbers"),
        ('{"text": "a", "vector": ["x", 1]}', "line 2 has no vector of finite numbers"),
        ('{"text": "a", "vector": [1, NaN]}', "line 2 has no vector of finite numbers"),
        ('{"text": "a", "vector": [1]}', "line 2 has 1 values, and line 1 has 2"),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "vectors.jsonl"
    file.write_text(f"{GOOD}\n{line}\n")
    with pytest.raises(TrbError) as raised:
        expected._read(file)
    assert (raised.value.code, raised.value.where) == (Code.USAGE, str(file))
    assert raised.value.message == message


def test_many_lines_are_spread(tmp_path: Path) -> None:
    file = tmp_path / "vectors.jsonl"
    lines = (json.dumps({"text": str(number), "vector": [number]}) for number in range(1000))
    file.write_text("\n".join(lines))
    examples = expected._read(file)
    assert examples.texts[:3] == ("0", "5", "10")
    assert examples.vectors.shape == (expected.MOST, 1)


def test_figures_of_a_difference() -> None:
    first = np.array([[1.0, 0.0], [0.0, 2.0]])
    assert vector_causes.difference_of(first, first).same
    turned = vector_causes.difference_of(first, np.array([[1.0, 0.0], [2.0, 0.0]]))
    assert (turned.largest, turned.cosine, turned.same) == (2.0, 0.0, False)


def test_equal_directions_are_told_by_their_length() -> None:
    unit = vector_causes.Examples(("a",), np.array([[0.6, 0.8]]))
    assert "the file's vectors are normalised" in vector_causes.of_length(unit)[0]
    long = vector_causes.Examples(("a",), np.array([[6.0, 8.0]]))
    assert "not normalised (lengths 10 to 10)" in vector_causes.of_length(long)[0]


@pytest.mark.parametrize(
    ("variant", "options"),
    [
        (MEAN, ()),
        (Variant(pooling="max", normalise=True, prompt="", limit=256), ("--pooling max",)),
        (
            Variant(pooling="cls", normalise=False, prompt="query: ", limit=32),
            ("--pooling cls", "--no-normalize", "--prompt 'query: '", "--max-length 32"),
        ),
        (Variant(pooling="pooler_output", normalise=True, prompt="", limit=None), ("", "")),
    ],
)
def test_changes_are_options_of_a_build(variant: Variant, options: tuple[str, ...]) -> None:
    assert tuple(option for _, option in variant.changes(MEAN)) == options
