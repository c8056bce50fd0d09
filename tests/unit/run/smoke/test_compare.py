"""Answers beside recorded ones: every way of being wrong is seen and named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from triton_repo_builder.repository.cases import Case, CaseTensor, record
from triton_repo_builder.repository.interface import Tensor
from triton_repo_builder.run.smoke import compare
from triton_repo_builder.run.smoke.attempt import Mismatch

CASE = Case(
    name="one",
    inputs=(),
    outputs=(
        CaseTensor(name="y", datatype="FP32", shape=(1, 3), data=(1.0, 2.0, 3.0)),
        CaseTensor(name="label", datatype="BYTES", shape=(1, 1), data=("good",)),
    ),
)


def answer(values: Any = (1.0, 2.0, 3.0), label: bytes = b"good") -> dict[str, Any]:
    return {
        "y": np.array([values], dtype=np.float32),
        "label": np.array([[label]], dtype=object),
        "extra": np.zeros((1,), dtype=np.int32),
    }


def test_within_tolerance_passes_and_tells_the_largest_difference() -> None:
    seen = compare.same(CASE, answer((1.0, 2.25, 3.0)), 0.25)
    assert (seen.difference, seen.allowed) == (0.25, 0.25)


@pytest.mark.parametrize(
    ("got", "text"),
    [
        (answer((1.0, 2.5, 3.1)), "output y[0, 1]: expected 2, got 2.5 (difference 0.5, allowed 0.25)"),
        (answer((1.0, float("nan"), 3.0)), "output y[0, 1]: expected 2, got nan"),
        (answer((1.0, 2.0)), "output y: expected shape [1, 3], got [1, 2]"),
        (answer(label=b"bad"), "output label[0, 0]: expected 'good', got 'bad'"),
        ({"label": answer()["label"]}, "output y: expected, but the answer has only label"),
        (
            {**answer(), "y": np.array([[1.0, 2.0, 3.0]])},
            "output y: expected FP32, got FP64",
        ),
    ],
)
def test_what_is_wrong_is_named(got: dict[str, Any], text: str) -> None:
    with pytest.raises(Mismatch) as problem:
        compare.same(CASE, got, 0.25)
    assert str(problem.value) == text


def test_a_sampled_output_is_named_by_its_own_index() -> None:
    array = np.zeros((1, 5000), dtype=np.float32)
    case = Case(name="big", inputs=(), outputs=(record("y", "FP32", array),))
    array[0, -1] = 1.0
    with pytest.raises(Mismatch, match=r"output y\[0, 4999\]: expected 0, got 1 "):
        compare.same(case, {"y": array}, 1e-3)


def test_a_row_is_cut_from_a_batch_at_open_axes_only() -> None:
    case = Case(
        name="tokens",
        inputs=(),
        outputs=(CaseTensor(name="y", datatype="FP32", shape=(1, 2, 2), data=(0.0, 1.0, 4.0, 5.0)),),
    )
    batch = np.arange(16, dtype=np.float32).reshape(2, 2, 4)
    open_axis = (Tensor(name="y", datatype="FP32", shape=(-1, 2, -1)),)
    part = compare.row({"y": batch}, 0, 2, case, open_axis)
    assert compare.same(case, part, 0.0).difference == 0.0
    fixed = (Tensor(name="y", datatype="FP32", shape=(-1, 2, 2)),)
    part = compare.row({"y": batch}, 0, 2, case, fixed)
    with pytest.raises(Mismatch, match=r"expected shape \[1, 2, 2\], got \[1, 2, 4\]"):
        compare.same(case, part, 0.0)


def test_a_batch_with_too_few_rows_is_a_mismatch() -> None:
    with pytest.raises(Mismatch, match=r"output y: expected 2 rows, got shape \[1, 3\]"):
        compare.row({"y": np.zeros((1, 3))}, 0, 2, CASE, ())
