from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_onnx as t

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.graph import reader
from triton_repo_builder.tasks import tensor


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (
            [t.tensor("X", ["n"], t.BF16)],
            [t.tensor("Y", ["n"])],
            "input 'X' has type bfloat16, which Triton's onnxruntime backend cannot carry",
        ),
        (
            [t.tensor("X", ["n"])],
            [t.tensor("Y", ["n"], 14)],
            "output 'Y' has type complex64, which Triton's onnxruntime backend cannot carry",
        ),
        (
            [t.tensor("X", ["n"])],
            [t.tensor("Y", ["n"], 99)],
            "output 'Y' has type onnx type 99, which Triton's onnxruntime backend cannot carry",
        ),
        ([t.tensor("X", ["n"])], [t.sequence("Y")], "output 'Y' is a sequence; Triton carries only tensors"),
        ([t.sequence("X")], [t.tensor("Y", ["n"])], "input 'X' is a sequence; Triton carries only tensors"),
    ],
)
def test_types_that_triton_has_not(
    inputs: list[Any], outputs: list[Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "m.onnx").write_bytes(t.model([], inputs, outputs))
    with pytest.raises(TrbError) as caught:
        tensor.check_types(reader.read_source(tmp_path / "m.onnx"))
    assert (caught.value.code, caught.value.message) == (Code.UNSUPPORTED_TYPE, message)
    assert caught.value.remedy
