"""``MLmodel``: the signature beside the graph, the input example, and files of strangers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read import mlmodel
from triton_repo_builder.repository import cases

EXAMPLE = np.arange(64, dtype=np.float32).reshape(2, 32)


def logged(folder: Path, dtype: str = "float32", name: str = "X", example: Any = None, **model: Any) -> Path:
    """A folder as MLflow writes it, around a tensor model."""
    folder.mkdir()
    tiny.tensor_model(folder / "model.onnx", **model)
    spec = {"name": name, "type": "tensor", "tensor-spec": {"dtype": dtype, "shape": [-1, 32]}}
    text = f"flavors:\n  onnx:\n    data: model.onnx\nsignature:\n  inputs: '{json.dumps([spec])}'\n"
    (folder / mlmodel.FILE).write_text(text)
    if example is not None:
        (folder / "serving_input_example.json").write_text(json.dumps({"inputs": example}))
    return folder


@pytest.mark.parametrize("dtype", ["float32", "object", "str"])
def test_a_signature_that_fits_is_silent(tmp_path: Path, dtype: str) -> None:
    """Types of strings and objects say nothing of numbers."""
    folder = logged(tmp_path / "m", dtype)
    mlmodel.refuse_mismatch(folder, reader.read_signature(folder / "model.onnx"))


@pytest.mark.parametrize(
    ("dtype", "name", "words"),
    [
        ("float64", "X", "float64 in its signature"),
        ("float32", "Z", "not in the graph"),
        ("quaternion", "X", "no desc"),
    ],
)
def test_a_signature_that_does_not_is_one_error(tmp_path: Path, dtype: str, name: str, words: str) -> None:
    folder = logged(tmp_path / "m", dtype, name)
    with pytest.raises(TrbError, match=words) as failure:
        mlmodel.refuse_mismatch(folder, reader.read_signature(folder / "model.onnx"))
    assert failure.value.code in (Code.UNSUPPORTED_MODEL, Code.NOT_FOUND) and failure.value.remedy


@pytest.mark.parametrize(
    "content", ["", "flavors: [", "- a", "flavors: 1", "a: &a [*a]", "signature: {inputs: 3}"]
)
def test_what_is_no_description_is_one_error(tmp_path: Path, content: str) -> None:
    (tmp_path / mlmodel.FILE).write_text(content)
    with pytest.raises(TrbError, match="no description of MLflow"):
        mlmodel.read(tmp_path)


@pytest.mark.parametrize(
    ("batch", "names", "shape"),
    [("batch", ["input_example_1", "input_example_2"], (1, 32)), (2, ["input_example_1"], (2, 32))],
)
def test_rows_of_the_example_are_cases_if_rows_are_batched(
    tmp_path: Path, batch: int | str, names: list[str], shape: tuple[int, ...]
) -> None:
    folder = logged(tmp_path / "m", example=EXAMPLE.tolist(), batch=batch)
    tiny.put(folder, tmp_path / "out", golden=True, name="m", task="tensor")
    recorded = cases.load(tmp_path / "out" / "m" / "smoke.json").cases
    examples = [case for case in recorded if case.name.startswith("input_example")]
    assert [case.name for case in examples] == names
    assert all(case.inputs[0].shape == shape for case in examples)
    np.testing.assert_array_equal(examples[0].inputs[0].array(), EXAMPLE[: shape[0]])


@pytest.mark.parametrize("example", [[[1, 2]], "text", [["a"] * 32], {"other": [[0] * 32]}])
def test_an_example_that_does_not_fit_is_left_out(tmp_path: Path, example: Any) -> None:
    folder = logged(tmp_path / "m", example=example)
    signature = reader.read_signature(folder / "model.onnx")
    assert mlmodel.example(folder, signature.inputs) == {}
