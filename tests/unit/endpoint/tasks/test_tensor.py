from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
import tiny_onnx as t

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.tasks import tensor
from triton_repo_builder.model.graph import reader


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


def zipmap(path: Path, producer: str) -> Path:
    """A graph that ends in a ZipMap, as CatBoost and skl2onnx write it."""
    map_type = onnx.helper.make_map_type_proto(t.INT64, onnx.helper.make_tensor_type_proto(t.FLOAT, []))
    scores = onnx.helper.make_value_info("probabilities", onnx.helper.make_sequence_type_proto(map_type))
    nodes = [
        t.node("Softmax", ["x"], ["probability_tensor"], axis=1),
        t.node(
            "ZipMap",
            ["probability_tensor"],
            ["probabilities"],
            domain="ai.onnx.ml",
            classlabels_int64s=[0, 1],
        ),
    ]
    model = onnx.load_from_string(t.model(nodes, [t.tensor("x", ["N", 2])], [scores], domains=["ai.onnx.ml"]))
    model.producer_name = producer
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("producer", ["CatBoost", "skl2onnx"])
def test_the_line_that_takes_a_zipmap_out(
    producer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = reader.read_source(zipmap(tmp_path / "my model.onnx", producer))
    with pytest.raises(TrbError) as caught:
        tensor.check_types(source)
    remedy = caught.value.remedy
    assert ("target_opset=17, options={'zipmap': False}" in remedy) is (producer == "skl2onnx")
    python, option, code, *names = shlex.split(remedy.partition("take the ZipMap out: ")[2])
    assert (python, option) == (sys.executable, "-c")
    assert names == [str(tmp_path / "my model.onnx"), str(tmp_path / "my model_plain.onnx")]
    monkeypatch.setattr(sys, "argv", ["-c", *names])
    exec(code, {})
    plain = reader.read_source(Path(names[1]))
    tensor.check_types(plain)
    assert [(spec.name, spec.shape) for spec in plain.signature.outputs] == [("probability_tensor", ("N", 2))]
