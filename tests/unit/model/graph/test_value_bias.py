"""The bias of values, moved behind attention, changes no answer but by rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from triton_repo_builder.model.graph import reader, value_bias
from triton_repo_builder.model.read import skeleton

MODELS = Path(__file__).parents[3] / "data" / "models"


def answers(model: onnx.ModelProto | Path) -> list[np.ndarray]:
    content = model.read_bytes() if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(content)
    random = np.random.default_rng(3)
    ids = random.integers(3, 30, (3, 7))
    mask = (np.arange(7) < np.array([[7], [4], [1]])).astype(np.int64)
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    return list(session.run(None, {item.name: given[item.name] for item in session.get_inputs()}))


@pytest.mark.parametrize("export", ["embedding/minilm_pooled", "embedding/classifier", "tasks/qa"])
def test_the_answers_are_the_same_but_for_rounding(export: str) -> None:
    path = MODELS / export / "model.onnx"
    model = onnx.load(path)
    # Biases of an untrained model are zero, and stored once: then nothing would be seen.
    stored = {one.name: one for one in model.graph.initializer}
    shared = [node for node in model.graph.node if node.op_type == "Identity" and ".bias" in node.output[0]]
    random = np.random.default_rng(1)
    for node in shared:
        values = random.standard_normal(stored[node.input[0]].dims).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
        model.graph.node.remove(node)
    biases = [node for node in shared if node.output[0].endswith("value.bias")]
    assert biases
    before = answers(model)
    adds = sum(node.op_type == "Add" for node in model.graph.node)
    made = value_bias.move(model, path.parent, "new/")
    assert len(made) == len(biases)
    assert sum(node.op_type == "Add" for node in model.graph.node) == adds - len(biases)
    assert all(name.startswith("new/") for name in made)
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in made.items())
    for old, new in zip(before, answers(model), strict=True):
        assert np.abs(old - new).max() < 1e-5 * max(1.0, float(np.abs(old).max()))
    assert max(float(np.abs(a - b).max()) for a, b in zip(before, answers(path), strict=True)) > 1e-4


@pytest.mark.parametrize("export", ["tasks/gpt2", "vision/vit", "conformance/deberta_v2_classes"])
def test_what_is_no_such_attention_stays(export: str) -> None:
    folder = MODELS / export
    path = folder / "model.onnx"
    model = reader.load(skeleton.read(path))
    before = model.SerializeToString()
    assert value_bias.move(model, folder, "new/") == {}
    assert model.SerializeToString() == before
