"""A graph without padding answers as the graph, whatever else is in the batch; what it cannot, it says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from triton_repo_builder.model.graph import per_row, reader, token_sums, walk
from triton_repo_builder.model.graph.packing import rewrite
from triton_repo_builder.model.read import skeleton
from triton_repo_builder.repository.tensor_names import ROW_LENGTHS

MODELS = Path(__file__).parents[4] / "data" / "models"
EXPORTS = [
    *(
        "embedding/minilm_pooled",
        "embedding/roberta",
        "embedding/classifier",
        "retrieval/colbert",
        "retrieval/splade",
    ),
    *("tasks/mlm", "tasks/ner_roberta", "tasks/qa", "tasks/rerank"),
    *("conformance/bert_cased_by_tokenizer_config_json_base", "conformance/roberta_position_ids_given_base"),
    "conformance/bert_by_torch_onnx_base",
]
Lengths = list[int]
Answers = list[npt.NDArray[Any]]
Ask = Callable[[Lengths], Answers]


def opened(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(str(path), options, disabled_optimizers=["SkipLayerNormFusion"])


def ask(session: onnxruntime.InferenceSession, pad: int, lengths: Lengths) -> Answers:
    """Rows whose tokens follow from their lengths, padded to the longest; answers without the padding."""
    longest = max(lengths)
    inside = np.arange(longest) < np.array(lengths)[:, None]
    ids = np.array([[5 + (7 * length + 3 * place) % 40 for place in range(longest)] for length in lengths])
    places = np.tile(np.arange(longest), (len(lengths), 1))
    tensors = {
        "input_ids": np.where(inside, ids, pad),
        "attention_mask": inside.astype(np.int64),
        "token_type_ids": np.zeros_like(ids),
        "position_ids": np.where(inside, places + pad + 1 if pad else places, pad),
        ROW_LENGTHS: np.array(lengths),
    }
    found = session.run(None, {item.name: tensors[item.name] for item in session.get_inputs()})
    for answer, output in zip(found, session.get_outputs(), strict=True):
        if answer.ndim > 1 and not isinstance(output.shape[1], int):
            answer[~inside] = 0
    return list(found)


@pytest.fixture(scope="module", params=EXPORTS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ask, Ask]:
    """The export, and the same without padding."""
    path = MODELS / request.param / "model.onnx"
    pad = 1 if "roberta" in request.param else 0
    sessions = opened(path), opened(packed(path, tmp_path_factory.mktemp("packed")))
    plain, packed_ask = (lambda lengths, one=one: ask(one, pad, lengths) for one in sessions)
    return plain, packed_ask


def packed(path: Path, folder: Path) -> Path:
    graph = skeleton.read(path)
    assert rewrite.obstacle(graph) == ""
    model = reader.load(graph, location="weights.onnx")
    token_sums.in_order(model)
    rewrite.pack(model)
    shutil.copyfile(path, folder / "weights.onnx")
    onnx.save(model, folder / "packed.onnx")
    onnx.checker.check_model(folder / "packed.onnx", full_check=True)
    return folder / "packed.onnx"


@settings(deadline=None, max_examples=25)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_a_row_is_answered_as_it_is_alone(both: tuple[Ask, Ask], lengths: Lengths) -> None:
    plain, unpadded = both
    together = unpadded(lengths)
    for number, length in enumerate(lengths):
        for answer, expected, alone in zip(together, plain([length]), unpadded([length]), strict=True):
            own = answer[number][tuple(slice(size) for size in expected.shape[1:])]
            far = max(4e-6, 4e-6 * float(np.abs(expected).max()))
            np.testing.assert_allclose(own, expected[0], rtol=0, atol=far)
            if length > 1:  # a product of one line has a kernel of its own
                assert np.array_equal(own, alone[0]), "other bits than alone"


@pytest.mark.parametrize("export", ["embedding/minilm_pooled", "embedding/roberta", "tasks/ner"])
def test_long_rows_take_their_queries_in_blocks_and_keep_their_bits(
    export: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pad = 1 if "roberta" in export else 0
    path = MODELS / export / "model.onnx"
    whole = opened(packed(path, tmp_path))
    monkeypatch.setattr(rewrite, "MOST_SCORES", 64)
    blocks = opened(packed(path, tmp_path))
    for lengths in ([1], [15], [16], [60], [31, 31, 2], [59, 60, 1, 32, 59]):
        for own, expected in zip(ask(blocks, pad, lengths), ask(whole, pad, lengths), strict=True):
            assert np.array_equal(own, expected), lengths


@pytest.mark.parametrize("export", ["embedding/minilm_pooled", "embedding/classifier"])
def test_int8_by_row_runs_without_padding_too(export: str, tmp_path: Path) -> None:
    """The same bits as alone; a digit far off, unlike in the padded graph, may round a number otherwise."""
    quantised = tmp_path / "int8.onnx"
    per_row.quantise(skeleton.read(MODELS / export / "model.onnx"), quantised)
    plain, unpadded = opened(quantised), opened(packed(quantised, tmp_path))
    lengths = [3, 17, 4, 17, 30, 2]
    together = ask(unpadded, 0, lengths)
    for number, length in enumerate(lengths):
        for answer, expected, alone in zip(
            together, ask(plain, 0, [length]), ask(unpadded, 0, [length]), strict=True
        ):
            own = answer[number][tuple(slice(size) for size in expected.shape[1:])]
            assert np.array_equal(own, alone[0])
            assert np.linalg.norm(own - expected[0]) < 0.05 * np.linalg.norm(expected[0])


def test_only_attention_is_in_a_loop(tmp_path: Path) -> None:
    path = MODELS / "embedding" / "minilm_pooled" / "model.onnx"
    layers = sum(node.op_type == "Softmax" for node in onnx.load(path).graph.node)
    graph = onnx.load(packed(path, tmp_path), load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    loops = [node for node in graph.node if node.op_type == "Loop"]
    assert len(loops) == layers
    products = [node for node in graph.node if node.op_type == "MatMul" and weights & {*node.input}]
    assert len(products) == 6 * layers
    inner = [node.op_type for one in walk.graphs(graph) if one is not graph for node in one.node]
    assert inner.count("MatMul") == 2 * layers
    assert not {"Add", "Where", "Expand"} & {*inner}  # no mask


@pytest.mark.parametrize("export", ["embedding/minilm_pooled", "embedding/roberta", "tasks/qa"])
def test_onnx_runtime_multiplies_heads_where_they_lie(export: str, tmp_path: Path) -> None:
    """Of an attention's four transpositions it carries out the last."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(str(packed(MODELS / export / "model.onnx", tmp_path)), options)
    graph = onnx.load(tmp_path / "optimised.onnx").graph
    inner = [node.op_type for one in walk.graphs(graph) if one is not graph for node in one.node]
    assert inner.count("Softmax") > 1
    assert inner.count("Transpose") == inner.count("Softmax")
    assert inner.count("FusedMatMul") == 2 * inner.count("Softmax")


@pytest.mark.parametrize(
    ("export", "why"),
    [
        ("tasks/gpt2/model.onnx", "no attention of a known form"),  # causal
        ("tasks/t5_past/encoder_model.onnx", "no attention of a known form"),  # relative positions
        ("conformance/deberta_v2_classes/model.onnx", "functions, branches or loops"),
        ("vision/clip_text/model.onnx", "no attention of a known form"),  # causal
    ],
)
def test_what_it_does_not_know_it_names(export: str, why: str) -> None:
    graph = skeleton.read(MODELS / export)
    assert why in rewrite.obstacle(graph)
    with pytest.raises(ValueError, match=why):
        rewrite.pack(reader.load(graph))


NO_ATTENTION = "no attention of a known form"


def edited(path: Path, edit: Callable[[onnx.GraphProto], None]) -> str:
    """The obstacle of the export after an edit."""
    model = onnx.load(MODELS / "embedding" / "minilm_pooled" / "model.onnx")
    edit(model.graph)
    onnx.save(model, path)
    return rewrite.obstacle(skeleton.read(path))


def insert(graph: onnx.GraphProto, before: str, node: onnx.NodeProto) -> None:
    """``node`` between a tensor and the first node of that type that reads it."""
    place, reader_of = next((i, one) for i, one in enumerate(graph.node) if one.op_type == before)
    node.input.insert(0, reader_of.input[0])
    reader_of.input[0] = node.output[0]
    graph.node.insert(place, node)


@pytest.mark.parametrize(
    "constant",
    [np.float32(0.5), np.zeros((2, 1, 1), np.float32) + 1, np.eye(7, dtype=np.float32)],
    ids=["number", "head", "place"],
)
def test_a_bias_that_is_no_mask_is_not_left_out(constant: Any, tmp_path: Path) -> None:
    def edit(graph: onnx.GraphProto) -> None:
        graph.initializer.append(numpy_helper.from_array(np.asarray(constant), "bias"))
        insert(graph, "Softmax", helper.make_node("Add", ["bias"], ["biased"]))

    assert edited(tmp_path / "m.onnx", edit) == NO_ATTENTION


def test_what_mixes_tokens_is_not_taken_for_a_token_s_own(tmp_path: Path) -> None:
    """A running sum over the tokens, between layers."""

    def edit(graph: onnx.GraphProto) -> None:
        graph.initializer.append(numpy_helper.from_array(np.array(1), "axis"))
        norms = [i for i, node in enumerate(graph.node) if node.op_type == "LayerNormalization"]
        node = graph.node[norms[1]]
        graph.node.insert(norms[1], helper.make_node("CumSum", [node.input[0], "axis"], ["running"]))
        graph.node[norms[1] + 1].input[0] = "running"

    assert "LayerNormalization" in edited(tmp_path / "m.onnx", edit)


def test_embeddings_that_are_read_beside_attention_are_named(tmp_path: Path) -> None:
    def edit(graph: onnx.GraphProto) -> None:
        norm = next(node for node in graph.node if node.op_type == "LayerNormalization")
        graph.node.append(helper.make_node("ReduceMax", [norm.output[0]], ["first"], keepdims=0))
        graph.output.append(helper.make_tensor_value_info("first", onnx.TensorProto.FLOAT, None))

    assert "is read before attention" in edited(tmp_path / "m.onnx", edit)


@pytest.mark.parametrize("ids", ["input_ids", "attention_mask"])
@pytest.mark.parametrize("how", ["Mul", "Add"])
def test_a_table_that_masks_is_not_laid_out_in_rows(ids: str, how: str, tmp_path: Path) -> None:
    """Its zeros, or lowest numbers, are of padding, where a tensor of tokens has those of another token."""

    def edit(graph: onnx.GraphProto) -> None:
        table = np.random.default_rng(0).random((2000, 1), np.float32)
        table[0] = 0 if how == "Mul" else -1e4
        graph.initializer.append(numpy_helper.from_array(table, "idf"))
        hidden = graph.output[0].name
        graph.node.extend(
            [
                helper.make_node("Gather", ["idf", ids], ["weights"]),
                helper.make_node(how, [hidden, "weights"], ["weighted"]),
                helper.make_node("ReduceMax", ["weighted", "by_token"], ["pooled"], keepdims=0),
            ]
        )
        graph.initializer.append(numpy_helper.from_array(np.array([1]), "by_token"))
        graph.output.append(helper.make_tensor_value_info("pooled", onnx.TensorProto.FLOAT, None))

    why = {
        "Mul": "'weighted' is read before attention",
        "Add": "ReduceMax '' reads tokens that nothing masks",
    }
    assert edited(tmp_path / "m.onnx", edit) == why[how]


def test_a_scale_of_each_head_is_not_taken_for_one_number(tmp_path: Path) -> None:
    def edit(graph: onnx.GraphProto) -> None:
        graph.initializer.append(numpy_helper.from_array(np.arange(1, 3, dtype=np.float32), "scales"))
        graph.initializer.append(numpy_helper.from_array(np.array([1, 2, 1, 1]), "form"))
        softmax = next(i for i, node in enumerate(graph.node) if node.op_type == "Softmax")
        graph.node.insert(softmax, helper.make_node("Reshape", ["scales", "form"], ["of_heads"]))
        insert(graph, "Softmax", helper.make_node("Mul", ["of_heads"], ["scaled"]))

    assert edited(tmp_path / "m.onnx", edit) == NO_ATTENTION


def test_a_damaged_node_is_named(tmp_path: Path) -> None:
    def edit(graph: onnx.GraphProto) -> None:
        node = next(node for node in graph.node if node.op_type == "MatMul")
        del node.input[1]

    assert "is not as its operator has it" in edited(tmp_path / "m.onnx", edit)


def test_the_opset_must_carry_sequences(tmp_path: Path) -> None:
    model = onnx.load(MODELS / "embedding" / "minilm_pooled" / "model.onnx")
    model.opset_import[0].version = 12
    onnx.save(model, tmp_path / "m.onnx")
    assert "opset 12" in rewrite.obstacle(skeleton.read(tmp_path / "m.onnx"))
