"""What is said of a graph before it runs is what it has when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest

from triton_repo_builder.model.graph.packing.facts import MASK, ROWS, TOKENS, GraphFacts

MODELS = Path(__file__).parents[4] / "data" / "models"
EXPORTS = [
    *("embedding/minilm_pooled", "embedding/roberta", "embedding/classifier_one", "retrieval/splade"),
    *(
        "tasks/mlm_unigram",
        "tasks/ner",
        "tasks/qa_roberta",
        "tasks/gpt2",
        "conformance/roberta_position_ids_given_base",
        "conformance/bert_by_torch_onnx_base",
    ),
]
SIZES = [(2, 7), (1, 11), (3, 1)]


ARITHMETIC = """
<ir_version: 8, opset_import: ["": 18]>
arithmetic (int64[rows, tokens] input_ids, int64[rows, tokens] attention_mask) => (int64[D] last) {
    sizes = Shape (input_ids)
    small = Cast <to = 6> (sizes)
    one = Constant <value = int64[1] {1}> ()
    seven = Constant <value = int64 {-7}> ()
    two = Constant <value_int = 2> ()
    parts = Constant <value_floats = [1.0, 2.0, 3.0, 4.0]> ()
    towards_zero = Div (seven, two)
    square = Constant <value = int64[2] {2, 2}> ()
    four = Constant <value = int64[4] {1, 1, 4, 1}> ()
    heads = Reshape (parts, four)
    matrix = Reshape (parts, square)
    stacked = Concat <axis = 0> (matrix, matrix)
    beside = Concat <axis = 1> (matrix, matrix)
    first = Gather (sizes, two_less_two)
    two_less_two = Sub (two, two)
    picked = Gather (sizes, two_less_two)
    with_one = Unsqueeze (picked, zeros)
    zeros = Constant <value = int64[1] {0}> ()
    shape = Concat <axis = 0> (zeros, one)
    small_one = Cast <to = 6> (one)
    small_shape = Concat <axis = 0> (small_one, small_one)
    yes = Constant <value = bool {1}> ()
    chosen = Where (yes, two, seven)
    chosen_of_many = Where (yes, matrix, matrix)
    back = Slice (four, one_less_two, far, zeros)
    one_less_two = Sub (one, twos)
    twos = Unsqueeze (two, zeros)
    far = Constant <value = int64[1] {9223372036854775807}> ()
    last = Identity (shape)
}"""


def in_order(text: str) -> onnx.ModelProto:
    """The model of a text whose nodes are in any order."""
    model = onnx.parser.parse_model(text)
    waiting, ready = [*model.graph.node], {value.name for value in model.graph.input}
    del model.graph.node[:]
    while waiting:
        node = next(one for one in waiting if {*one.input} <= ready)
        waiting.remove(node)
        ready |= {*node.output}
        model.graph.node.append(node)
    return model


def test_values_are_computed_as_onnxruntime_does() -> None:
    facts, tensors = everything(in_order(ARITHMETIC), 2, 7)
    known = {name for name in tensors if facts.value(name) is not None}
    assert {"towards_zero", "heads", "matrix", "small_shape", "back", "last"} <= known
    for name in known:
        value = facts.value(name)
        assert value is not None
        assert (value.shape, value.dtype) == (tensors[name].shape, tensors[name].dtype), name
        assert np.array_equal(value, tensors[name]), name


def everything(
    model: onnx.ModelProto, rows: int, length: int
) -> tuple[GraphFacts, dict[str, npt.NDArray[Any]]]:
    """The facts, and every tensor that a run without padding makes."""
    facts = GraphFacts(model)
    kept = {value.name for value in model.graph.output}
    made = [name for node in model.graph.node for name in node.output if name and name not in kept]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    random = np.random.default_rng(0)
    given = {item.name: random.integers(2, 40, (rows, length)) for item in session.get_inputs()}
    given |= {
        "position_ids": np.tile(np.arange(length) + 2, (rows, 1)),
        MASK: np.ones((rows, length), np.int64),
    }
    given["token_type_ids"] = np.zeros((rows, length), np.int64)
    feed = {item.name: given[item.name] for item in session.get_inputs()}
    names = [item.name for item in session.get_outputs()]
    return facts, {**feed, **dict(zip(names, session.run(None, feed), strict=True))}


@pytest.mark.parametrize(("rows", "length"), SIZES)
@pytest.mark.parametrize("export", EXPORTS)
def test_sizes_and_values_are_those_of_a_run(export: str, rows: int, length: int) -> None:
    facts, tensors = everything(onnx.load(MODELS / export / "model.onnx"), rows, length)
    named = {ROWS: rows, TOKENS: length}
    sizes = 0
    for name, array in tensors.items():
        if not isinstance(array, np.ndarray):
            continue
        dims = facts.dims.get(name)
        if dims is not None:
            assert len(dims) == array.ndim, name
        for dim, size in zip(dims or (), array.shape, strict=False):
            if isinstance(dim, int) or dim in named:
                assert named.get(dim, dim) == size, f"{name}: {dims}"  # type: ignore[arg-type]
                sizes += 1
        value = facts.value(name)
        if value is not None:
            assert value.shape == array.shape, name
            assert value.dtype.kind == array.dtype.kind, name
            np.testing.assert_allclose(array, value, rtol=1e-6, err_msg=name)
        if name in facts.uniform:
            assert (array == facts.uniform[name]).all(), name
    assert sizes > 0.8 * len(tensors)


def test_the_mask_of_a_known_export_is_followed_to_its_end() -> None:
    """Not only nothing wrong is said: the bias of each attention is known to be 0."""
    facts = GraphFacts(onnx.load(MODELS / "embedding" / "minilm_pooled" / "model.onnx"))
    biases = [
        facts.uniform.get(name)
        for node in facts.graph.node
        if node.op_type == "Softmax"
        for name in facts.producer[node.input[0]].input
    ]
    assert biases.count(0) == len(biases) / 2
