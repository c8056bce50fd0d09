"""Exports with the cache of a text generator among their inputs, served without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

from triton_repo_builder.endpoint.golden import original
from triton_repo_builder.model.graph import reader

# Joined to the cache; its size; the number of its rows; and an operator that takes it as it is.
GRAPH = """<ir_version: 8, opset_import: ["": 17]>
g (int64[batch, tokens] input_ids, float[batch, 2, past, 3] past_key_values_0)
  => (float[batch, tokens, 3] last_hidden_state, float[batch, 2, all, 3] present)
<int64 two = {2}, int64[1] heads = {1}, float[1] fill = {5}> {
  ids = Cast <to = 1> (input_ids)
  axis = Constant <value = int64[1] {2}> ()
  column = Unsqueeze (ids, axis)
  hidden = Concat <axis = 2> (column, column, column)
  one = Unsqueeze (hidden, heads)
  new = Concat <axis = 1> (one, one)
  present = Concat <axis = 2> (past_key_values_0, new)
  sizes = Shape (past_key_values_0)
  before = Gather (sizes, two)
  shift = Cast <to = 1> (before)
  total = ReduceSum <keepdims = 0> (past_key_values_0)
  moved = Add (shift, total)
  last_hidden_state = Add (hidden, moved)
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(GRAPH), path)
    return path


def test_the_graph_without_answers_as_the_file_with_none(model: Path) -> None:
    source = reader.read_source(model)
    assert [spec.name for spec in source.signature.inputs] == ["input_ids"]
    changed = reader.load(source.skeleton)
    assert "past_key_values" not in {name for node in changed.graph.node for name in node.output}
    onnx.checker.check_model(changed, full_check=True)
    ids = np.arange(8, dtype=np.int64).reshape(2, 4)
    names = [spec.name for spec in source.signature.outputs]
    served: Any = ort.InferenceSession(changed.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = original.load(source).run(names, {"input_ids": ids})
    for got, want in zip(served.run(names, {"input_ids": ids}), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_as_plain_tensors_the_cache_is_given(model: Path) -> None:
    read = reader.as_exported(reader.read_source(model))
    assert read.signature.input("past_key_values_0") is not None
