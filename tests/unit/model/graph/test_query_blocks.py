"""Attention in blocks of queries gives the same numbers; what is no such attention stays as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import parser

from triton_repo_builder.model.graph import peak, query_blocks
from triton_repo_builder.model.graph.packing.facts import GraphFacts

MODELS = Path(__file__).parents[3] / "data" / "models"
EXPORTS = ["tasks/gpt2", "vision/clip_text", "tasks/ner", "conformance/bert_by_torch_onnx_base"]
Answers = list[npt.NDArray[np.float32]]

ATTENTION = """
<ir_version: 8, opset_import: ["" : 17]>
one (int64[B, T] input_ids, float[B, 2, T, 4] q, float[B, 2, 4, T] k, float[B, 2, T, 4] v,
     float[1, 1, T, T] bias, float[B, 1, 1, T] mask) => (float[B, 2, T, 4] y) {
    scores = MatMul (q, k)
    biased = Add (scores, bias)
    masked = Add (biased, mask)
    BEFORE
    weights = Softmax <axis = AXIS> (masked)
    y = MatMul (weights, v)
}
"""


def attention(before: str = "", axis: int = -1) -> onnx.ModelProto:
    return parser.parse_model(ATTENTION.replace("BEFORE", before).replace("AXIS", str(axis)))


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def answers(model: onnx.ModelProto, lengths: list[int]) -> Answers:
    """To rows whose tokens follow from their lengths, padded to the longest."""
    one = session(model)
    longest = max(lengths)
    inside = np.arange(longest) < np.array(lengths)[:, None]
    ids = np.array([[5 + (7 * length + 3 * place) % 40 for place in range(longest)] for length in lengths])
    tensors = {
        "input_ids": np.where(inside, ids, 0),
        "attention_mask": inside.astype(np.int64),
        "token_type_ids": np.zeros_like(ids),
        "position_ids": np.tile(np.arange(longest), (len(lengths), 1)),
    }
    return list(one.run(None, {item.name: tensors[item.name] for item in one.get_inputs()}))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of few queries."""
    monkeypatch.setattr(query_blocks, "MOST_SCORES", 300)
    monkeypatch.setattr(query_blocks, "LEAST_PLACES", 3)


@pytest.mark.parametrize("export", EXPORTS)
def test_blocks_have_the_bits_of_the_whole(export: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.load(MODELS / export / "model.onnx")
    layers = sum(node.op_type == "Softmax" for node in model.graph.node)
    whole, blocks = onnx.ModelProto(), onnx.ModelProto()
    for copy, scores in ((whole, 1 << 30), (blocks, 300)):
        monkeypatch.setattr(query_blocks, "MOST_SCORES", scores)
        copy.CopyFrom(model)
        query_blocks.write(copy)
        assert sum(node.op_type == "If" for node in copy.graph.node) == layers
    for lengths in ([1], [2, 3], [17], [40, 7, 31], [40] * 5):
        asked = (answers(one, lengths) for one in (blocks, whole, model))
        for own, same, original in zip(*asked, strict=True):
            assert np.array_equal(own, same, equal_nan=True), lengths
            np.testing.assert_allclose(own, original, rtol=0, atol=2e-5)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("biases", "tokens"), [(29, 29), (1, 29), (1, 1)])
def test_a_bias_for_all_queries_or_for_each(biases: int, tokens: int) -> None:
    """Its size is known only as it runs."""
    model = parser.parse_model(
        ATTENTION.replace("BEFORE", "").replace("AXIS", "-1").replace("[1, 1, T, T]", "[1, 1, U, T]")
    )
    blocked = onnx.ModelProto()
    blocked.CopyFrom(model)
    query_blocks.write(blocked)
    assert [node.op_type for node in blocked.graph.node].count("If") == 1
    random = np.random.default_rng(0)
    shapes = {"q": (3, 2, tokens, 4), "k": (3, 2, 4, tokens), "v": (3, 2, tokens, 4)}
    shapes |= {"bias": (1, 1, biases, tokens), "mask": (3, 1, 1, tokens)}
    feed = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    feed["input_ids"] = np.ones((3, tokens), np.int64)
    own, expected = (session(one).run(None, feed)[0] for one in (blocked, model))
    assert np.array_equal(own, expected)


@pytest.mark.parametrize(
    ("before", "axis"),
    [
        ("", 2),  # a softmax over the queries
        ("read = Shape (masked)", -1),  # scores that something else reads
        ("turned = Transpose <perm = [0, 1, 3, 2]> (masked)", -1),
    ],
)
def test_what_is_no_attention_by_query_stays(before: str, axis: int) -> None:
    model = attention(before, axis)
    if "turned" in before:
        model.graph.node[4].input[0] = "turned"
    plain = model.SerializeToString()
    found = list(query_blocks.find(GraphFacts(model), 17))
    if not found:
        query_blocks.write(model)
        assert model.SerializeToString() == plain
    else:  # the scores stay whole, and are read by block
        assert all(node.op_type != "Add" for node in found[0].nodes)


def test_a_tensor_that_is_keys_and_bias_at_once_stays_whole() -> None:
    """A block of it is read beside the scores, and all of it by the product."""
    model = parser.parse_model("""
<ir_version: 8, opset_import: ["" : 17]>
one (int64[B, T] input_ids, float[B, 2, T, T] q, float[B, 2, T, T] k, float[B, 2, T, 4] v)
    => (float[B, 2, T, 4] y) {
    both = Neg (k)
    scores = MatMul (q, both)
    biased = Add (scores, both)
    weights = Softmax <axis = -1> (biased)
    y = MatMul (weights, v)
}
""")
    assert list(query_blocks.find(GraphFacts(model), 17)) == []


def test_the_peak_grows_with_the_square_of_a_text_unless_it_runs_in_blocks() -> None:
    model = onnx.load(MODELS / "tasks" / "gpt2" / "model.onnx")
    plain, blocks = (peak.Peak(model, blocks=blocks) for blocks in (False, True))
    assert plain.bytes(1, 64) == blocks.bytes(1, 64)
    # Scores and their softmax, two heads of four bytes, and one mask of a byte at least.
    heads = 4
    assert plain.bytes(1, 8192) > 2 * heads * 4 * 8192**2
    assert plain.bytes(1, 16384) > 3.9 * plain.bytes(1, 8192)
    assert plain.bytes(3, 2048) > 2.5 * plain.bytes(1, 2048)
    assert blocks.bytes(1, 8192) < plain.bytes(1, 8192) / 2


@pytest.mark.parametrize(
    ("export", "heads"),
    [("tasks/t5_past/encoder_model.onnx", 4), ("conformance/deberta_v2_classes/model.onnx", 4)],
)
def test_the_peak_knows_sizes_that_the_graph_computes(export: str, heads: int) -> None:
    """Within what two to nine tensors of scores take: no size counts as 1, none as one that it is not."""
    scores = heads * 4 * 2048**2
    assert 2 * scores <= peak.Peak(onnx.load(MODELS / export), blocks=False).bytes(1, 2048) <= 9 * scores
