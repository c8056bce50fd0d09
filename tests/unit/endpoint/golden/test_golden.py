from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tiny
import tiny_onnx as t

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.endpoint.golden import original, tolerance
from triton_repo_builder.endpoint.golden import (
    tensor as golden_tensor,
)
from triton_repo_builder.endpoint.golden import (
    text as golden_text,
)
from triton_repo_builder.endpoint.tasks.support.examples import SINGLE
from triton_repo_builder.endpoint.tasks.task import OriginalRun
from triton_repo_builder.model.graph import reader, session
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce import build
from triton_repo_builder.repository import cases
from triton_repo_builder.repository.cases import Case, CaseTensor


def case(*data: float, datatype: str = "FP32") -> Case:
    output = CaseTensor(name="Y", datatype=datatype, shape=(1, len(data)), data=data)
    return Case(name="a", inputs=(), outputs=(output,))


# --- tolerance ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "alone"),
    [
        (case(0.5), 1e-4),
        (case(-20.0), 2e-3),
        (case(3e-6, -1e-7), 3e-7),
        (case(0.0), 1e-4),
        (case(123.4), 0.013),
        (case(math.inf, math.nan, 3.0), 3e-4),
        (case(0.5, datatype="FP16"), 5e-3),
        (case(2**40, datatype="INT64"), 1e-4),
        (case(True, datatype="BOOL"), 1e-4),
        (case(), 1e-4),
    ],
)
def test_tolerance_grows_with_float_answers_only(recorded: Case, alone: float) -> None:
    made = tolerance.tolerance([recorded])
    assert made.alone == made.batched == pytest.approx(alone)


def test_tf32_of_a_gpu_is_noise() -> None:
    made = tolerance.tolerance([case(0.5)], tolerance.HALF)
    assert made.alone == made.batched == 5e-3
    assert made.reason == "float noise between kernels and batch sizes, with TF32 as a GPU multiplies"


@pytest.mark.parametrize(
    ("largest", "rounding", "alone"),
    [(0.5, 0.03, 0.03), (20.0, 0.03, 0.6), (0.1, 0.5, 0.025), (0.5, 1e-6, 1e-4), (0.5, 0.0, 1e-4)],
)
def test_steps_of_8_bits_count_alone_only(largest: float, rounding: float, alone: float) -> None:
    made = tolerance.tolerance([case(largest)], rounding=rounding)
    assert made.alone == pytest.approx(alone)
    assert made.batched == pytest.approx(tolerance.tolerance([case(largest)]).batched)
    assert ("8-bit steps" in made.reason) == (rounding > 0)


@pytest.mark.parametrize("value", [1e-9, 0.00012345, 0.1, 1.0, 99.1, 12345.0])
def test_rounding_up_keeps_two_digits_and_never_tightens(value: float) -> None:
    rounded = tolerance.round_up(value)
    assert value <= rounded * (1 + 1e-12)
    assert rounded <= value * 1.1
    assert tolerance.round_up(rounded) == pytest.approx(rounded)


# --- tensor models -----------------------------------------------------------------------------------


def tensor(
    path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], **options: Any
) -> original.Recording:
    path.write_bytes(t.model(nodes, inputs, outputs, **options))
    read = reader.read_source(path)
    return golden_tensor.record(original.load(read), read, "m", batching=read.signature.batch.possible)


def test_independent_rows_can_be_batched(tmp_path: Path) -> None:
    tiny.tensor_model(tmp_path / "m.onnx")
    read = reader.read_source(tmp_path / "m.onnx")
    made = golden_tensor.record(original.load(read), read, "m", batching=True)
    assert (made.batchable, made.obstacle) == (True, "")
    assert made.cases is not None
    assert [entry.name for entry in made.cases.cases] == ["generated_1", "generated_2"]
    first, second = (entry.inputs[0].array() for entry in made.cases.cases)
    assert not np.array_equal(first, second)


def test_the_number_of_boxes_is_no_batch(tmp_path: Path) -> None:
    """As a detector: any number of rows in, as many rows out as pass a threshold."""
    nodes = [
        t.node("ReduceMax", ["X"], ["best"], axes=[1], keepdims=0),
        t.node("Greater", ["best", "half"], ["good"]),
        t.node("Compress", ["X", "good"], ["boxes"], axis=0),
        t.node("Concat", ["boxes", "always"], ["Y"], axis=0),
    ]
    constants = [t.constant("half", t.FLOAT, [], [0.5]), t.constant("always", t.FLOAT, [1, 4], [0.0] * 4)]
    made = tensor(
        tmp_path / "m.onnx",
        nodes,
        [t.tensor("X", ["n", 4])],
        [t.tensor("Y", ["m", 4])],
        initializers=constants,
    )
    assert not made.batchable
    assert made.obstacle == "output 'Y' gives 8 rows for a batch of 7"


def test_a_model_that_fails_on_two_rows(tmp_path: Path) -> None:
    made = tensor(
        tmp_path / "m.onnx",
        [t.node("Reshape", ["X", "one"], ["Y"])],
        [t.tensor("X", ["n", 4])],
        [t.tensor("Y", ["n", 4])],
        initializers=[t.constant("one", t.INT64, [2], [1, 4])],
    )
    assert not made.batchable
    assert made.obstacle.startswith("it fails on a batch of 7 (")


def test_rows_that_mix_are_found_beside_a_number_that_is_none(tmp_path: Path) -> None:
    """Y = [0/0, sum of the column]: the NaN must not hide that the second number moves."""
    nodes = [
        t.node("ReduceSum", ["X", "axis"], ["sum"], keepdims=1),
        t.node("Mul", ["X", "zero"], ["zeros"]),
        t.node("Div", ["zeros", "zeros"], ["nan"]),
        t.node("Add", ["zeros", "sum"], ["sums"]),
        t.node("Concat", ["nan", "sums"], ["Y"], axis=1),
    ]
    constants = [t.constant("axis", t.INT64, [1], [0]), t.constant("zero", t.FLOAT, [], [0.0])]
    made = tensor(
        tmp_path / "m.onnx",
        nodes,
        [t.tensor("X", ["n", 2])],
        [t.tensor("Y", ["n", 4])],
        initializers=constants,
    )
    assert made.obstacle == "rows of output 'Y' depend on each other"


def test_rows_that_mix_are_found_where_the_cases_are_almost_the_same(tmp_path: Path) -> None:
    """Y = X minus the mean of the batch: 0 for one row, and for two that are almost equal."""
    made = tensor(
        tmp_path / "m.onnx",
        [
            t.node("ReduceMean", ["X"], ["mean"], axes=[0], keepdims=1),
            t.node("Sub", ["X", "mean"], ["difference"]),
            t.node("Cast", ["difference"], ["Y"], to=t.FP16),
        ],
        [t.tensor("X", ["n", 4])],
        [t.tensor("Y", ["n", 4], t.FP16)],
    )
    assert made.obstacle == "rows of output 'Y' depend on each other"


def test_sizes_are_tried_until_one_fits(tmp_path: Path) -> None:
    made = tensor(
        tmp_path / "m.onnx",
        [t.node("MatMul", ["X", "W"], ["Y"])],
        [t.tensor("X", ["n", "width"])],
        [t.tensor("Y", ["n", 1])],
        initializers=[t.constant("W", t.FLOAT, [64, 1], [1.0] * 64)],
    )
    assert made.cases is not None
    assert made.cases.cases[0].inputs[0].shape == (1, 64)


def test_a_model_that_takes_no_generated_input(tmp_path: Path) -> None:
    made = tensor(
        tmp_path / "m.onnx",
        [t.node("MatMul", ["X", "W"], ["Y"])],
        [t.tensor("X", ["n", "width"])],
        [t.tensor("Y", ["n", 1])],
        initializers=[t.constant("W", t.FLOAT, [63, 1], [1.0] * 63)],
    )
    assert (made.cases, made.batchable) == (None, True)
    assert made.notes[0].startswith("no golden cases: the model refuses generated inputs (")


@pytest.mark.parametrize("dtype", [t.FLOAT, t.FP16, t.INT32, t.INT64, t.BOOL, t.STRING])
@pytest.mark.parametrize("shape", [["n", 3], ["n"], [], [2, 3], ["n", 100, 100]])
def test_every_type_and_shape_is_recorded_and_read_back(dtype: int, shape: list[Any], tmp_path: Path) -> None:
    made = tensor(
        tmp_path / "m.onnx",
        [t.node("Identity", ["X"], ["Y"])],
        [t.tensor("X", shape, dtype)],
        [t.tensor("Y", shape, dtype)],
    )
    assert made.cases is not None
    (tmp_path / "smoke.json").write_text(cases.dump(made.cases))
    read = cases.load(tmp_path / "smoke.json")
    for entry in read.cases:
        assert cases.difference(entry.outputs[0], entry.inputs[0].array()) == 0.0


def test_a_model_that_onnx_runtime_cannot_load(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(
        t.model([t.node("NoSuchOp", ["X"], ["Y"])], [t.tensor("X", ["n"])], [t.tensor("Y", ["n"])])
    )
    with pytest.raises(TrbError) as caught:
        original.load(reader.read_source(tmp_path / "m.onnx"))
    assert caught.value.code == Code.GOLDEN_FAILED
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", ["model.onnx", "größer, 1.onnx"])
@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("linked", ["", "models--x/blobs", "elsewhere"])
def test_weights_that_are_mapped_are_the_same(
    name: str, outside: bool, linked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the files are links to blobs (Hugging Face), or where the user names a link to the model."""
    path = tiny.tensor_model(tmp_path / "models--x" / "snapshots" / "1" / name, inputs=("A", "B"))
    if outside:
        tiny.externalise(path)
    moved = sorted(path.parent.iterdir()) if linked.endswith("blobs") else [path] if linked else []
    for number, file in enumerate(moved):
        blob = tmp_path / linked / f"{number:03}"
        blob.parent.mkdir(parents=True, exist_ok=True)
        file.rename(blob)
        file.symlink_to(blob)
    read = reader.read_source(path)
    feeds = {one: np.random.default_rng(3).normal(size=(5, 32)).astype(np.float32) for one in "AB"}
    (loaded,) = original.load(read).run(None, feeds)
    monkeypatch.setattr(session, "MAPPED", 0)
    (mapped,) = original.load(read).run(None, feeds)
    np.testing.assert_allclose(mapped, loaded, rtol=1e-6, atol=1e-6)


def test_a_large_model_that_onnx_runtime_cannot_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MAPPED", 0)
    test_a_model_that_onnx_runtime_cannot_load(tmp_path)


# --- text models -------------------------------------------------------------------------------------


def text(
    folder: Path, *, batching: bool = True, max_length: int | None = 24, pad_to: int = 0
) -> original.Recording:
    read = reader.read_source(folder)
    options = BuildOptions(model=folder)
    task = tasks.choose(read, None)[0].plan(read, options)
    settings = golden_text.TokenizerSettings(max_length=max_length, pad_to=pad_to, pad_id=0)
    return golden_text.record(original.load(read), read, task, settings, "m", batching=batching)


def test_texts_are_recorded_with_the_transformers_tokenizer(tmp_path: Path) -> None:
    made = text(tiny.embedder(tmp_path / "bert"))
    assert made.batchable
    assert made.cases is not None
    assert "transformers" in made.cases.recorded_with
    assert [entry.name for entry in made.cases.cases] == [name for name, _ in SINGLE]
    assert made.cases.tolerance.alone == made.cases.tolerance.batched == 1e-4
    for entry in made.cases.cases:
        (output,) = entry.outputs
        assert output.shape == (1, tiny.WIDTH)
        assert np.linalg.norm(output.data) == pytest.approx(1, abs=1e-6)


def ends_in(folder: Path, nodes: Sequence[Any], *more: Any) -> Path:
    """A classifier whose logits these nodes, from ``raw`` to ``logits``, make into something else."""
    graph = onnx.load(folder / "model.onnx")
    graph.graph.node[-1].output[0] = "raw"
    graph.graph.node.extend(nodes)
    graph.graph.initializer.extend(more)
    onnx.save(graph, folder / "model.onnx")
    return folder


def test_scores_that_sum_up_to_1_are_no_logits(tmp_path: Path) -> None:
    """However the graph makes them: a second softmax would flatten them, and the cases made by it pass."""
    nodes = [
        onnx.helper.make_node("Exp", ["raw"], ["powers"]),
        onnx.helper.make_node("LpNormalization", ["powers"], ["logits"], axis=-1, p=1),
    ]
    with pytest.raises(TrbError, match="output 'logits' gives probabilities: each of") as caught:
        text(ends_in(tiny.classifier(tmp_path / "c"), nodes))
    assert caught.value.code is Code.UNSUPPORTED_MODEL


def test_one_minus_a_sigmoid_beside_it_is_no_pair_of_logits(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("Sigmoid", ["raw"], ["yes"]),
        onnx.helper.make_node("Sub", ["whole", "yes"], ["no"]),
        onnx.helper.make_node("Concat", ["no", "yes"], ["logits"], axis=-1),
    ]
    folder = ends_in(
        tiny.classifier(tmp_path / "c", labels=1),
        nodes,
        onnx.numpy_helper.from_array(np.array(1, np.float32), "whole"),
    )
    graph = onnx.load(folder / "model.onnx")
    graph.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 2
    onnx.save(graph, folder / "model.onnx")
    config = json.loads((folder / "config.json").read_text())
    tiny.put_json(folder / "config.json", {**config, "id2label": {"0": "no", "1": "yes"}})
    with pytest.raises(TrbError, match="gives probabilities"):
        text(folder)


def test_a_class_that_wins_by_a_hair_is_not_recorded(tmp_path: Path) -> None:
    folder = tiny.classifier(tmp_path / "c", labels=2)
    read = reader.read_source(folder)
    task = tasks.choose(read, None)[0].plan(read, BuildOptions(model=folder))
    close = {"scores": np.array([[0.5, 0.50001]]), "label": np.array([[b"x"]]), "score": np.array([[0.5]])}
    assert [tensor.name for tensor in golden_text.outputs(task, close, 1e-4)] == ["score", "scores"]


@pytest.mark.parametrize("beside", [math.nan, math.inf, 0.9])
def test_an_answer_that_changes_beside_a_long_text(
    beside: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tolerance makes up for it: the graph runs row by row."""
    run_rows = golden_text.run_rows

    def changing(runner: Any, read: Any, rows: Any, settings: Any) -> Any:
        values, mask = run_rows(runner, read, rows, settings)
        if len(rows) > 1:
            values = {name: np.full_like(array, beside) for name, array in values.items()}
        return values, mask

    monkeypatch.setattr(golden_text, "run_rows", changing)
    made = text(tiny.embedder(tmp_path / "bert"))
    assert made.batchable
    assert made.interaction == "its answer to a text changes with the other texts in the batch"
    assert made.cases is not None
    assert made.cases.tolerance.batched == 1e-4


def test_a_batch_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As BART's classifier does on texts with another number of end tokens."""
    run_rows = golden_text.run_rows

    def failing(runner: Any, read: Any, rows: Any, settings: Any) -> Any:
        if len(rows) > 1:
            raise TrbError(Code.GOLDEN_FAILED, "no", where="", remedy="")
        return run_rows(runner, read, rows, settings)

    monkeypatch.setattr(golden_text, "run_rows", failing)
    assert (
        text(tiny.embedder(tmp_path / "bert")).interaction
        == "it fails on texts of different length in a batch"
    )


NER = {"model_type": "bert", "max_position_embeddings": 32, "architectures": ["BertForTokenClassification"]}
SHARE = (
    "few = Constant <value = float {1e-4}> () middle = ReduceMean <axes = [0], keepdims = 1> (trunk) "
    "share = Mul (few, middle) last_hidden_state = Add (trunk, share)"
)
"""A ten-thousandth of the batch's mean."""
OTHERS_END = """
    sep = Constant <value = int64 {3}> ()
    is_end = Equal (input_ids, sep)
    ends = NonZero (is_end)
    places = Transpose <perm = [1, 0]> (ends)
    vectors = GatherND (trunk, places)
    ids_shape = Shape (input_ids)
    row = Constant <value = int64[1] {0}> ()
    rows = Gather (ids_shape, row)
    rest = Constant <value = int64[2] {-1, 8}> ()
    by_row = Concat <axis = 0> (rows, rest)
    of_row = Reshape (vectors, by_row)
    last = Constant <value = int64[1] {-1}> ()
    end = Gather <axis = 1> (of_row, last)
    last_hidden_state = Add (trunk, end)
"""
"""As BART's classifier: the last end token of each row, if all rows have as many."""


@pytest.mark.parametrize(
    ("nodes", "apart"),
    [(SHARE, "its answer to a text changes"), (OTHERS_END, "it fails on texts of different length")],
)
def test_a_model_that_mixes_rows(nodes: str, apart: str, tmp_path: Path) -> None:
    """A little, below what two machines may differ by; or only beside a text that spells special tokens."""
    folder = tiny.embedder(tmp_path / "bert", output="trunk")
    model = onnx.load(folder / "model.onnx")
    inputs = "float[b, s, 8] trunk, int64[b, s] input_ids"
    made = onnx.parser.parse_graph(f"g ({inputs}) => (float[b, s, 8] last_hidden_state) {{{nodes}}}")
    model.graph.node.extend(made.node)
    model.graph.output[0].name = "last_hidden_state"
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    assert text(folder).interaction.startswith(apart)


def test_rows_that_mix_are_found_behind_scores_of_1(tmp_path: Path) -> None:
    """Logits so far apart that the softmax gives the same numbers whatever the batch adds."""
    folder = tiny.classifier(tmp_path / "c")
    model = onnx.load(folder / "model.onnx")
    model.graph.node[-1].output[0] = "own_logits"
    nodes = (
        "far = Constant <value = float[3] {0, 200, 0}> () few = Constant <value = float {0.01}> () "
        "middle = ReduceMean <axes = [0], keepdims = 1> (own_logits) share = Mul (few, middle) "
        "moved = Add (own_logits, share) logits = Add (moved, far)"
    )
    made = onnx.parser.parse_graph(f"g (float[b, 3] own_logits) => (float[b, 3] logits) {{{nodes}}}")
    model.graph.node.extend(made.node)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    assert text(folder).interaction == "its answer to a text changes with the other texts in the batch"


def test_rows_that_mix_are_found_where_no_answer_is_stable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that float noise decides is not recorded; the outputs behind it show whether rows mix."""
    folder = tiny.describe(tmp_path / "ner", architectures=["BertForTokenClassification"])
    tiny.text_model(folder / "model.onnx", output="token_logits", rows=tiny.ROWS)
    tiny.put_json(folder / "config.json", {**NER, "id2label": {str(n): f"B-{n}" for n in range(tiny.ROWS)}})
    monkeypatch.setattr(golden_text, "stable", lambda *_: False)
    assert text(folder).interaction == ""
    run_rows = golden_text.run_rows

    def moving(runner: Any, read: Any, rows: Any, settings: Any) -> Any:
        values, mask = run_rows(runner, read, rows, settings)
        more = len(rows) - 1
        return {
            name: array + more if array.dtype.kind == "f" else array for name, array in values.items()
        }, mask

    monkeypatch.setattr(golden_text, "run_rows", moving)
    made = text(folder)
    assert made.cases is None
    assert made.interaction == "its answer to a text changes with the other texts in the batch"


def test_what_was_never_run_in_a_batch_has_shown_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(golden_text, "encoded", lambda *_: None)
    made = text(tiny.embedder(tmp_path / "bert"))
    assert made.cases is None
    assert not made.compared


@pytest.mark.parametrize("rounding", [0.0, 0.01])
def test_beside_other_rows_less_may_move_than_between_machines(rounding: float) -> None:
    allowed = tolerance.together([case(0.5)], tolerance.ABSOLUTE, rounding)
    assert allowed == (1e-4 if rounding else 1e-5)
    assert tolerance.together([case(0.5)], tolerance.HALF) == 5e-3


def test_the_neighbour_is_as_long_as_it_must_be() -> None:
    """Long enough to pad every shorter one, and it ends as its text does."""

    def asked(*lengths: int) -> OriginalRun:
        rows = [{"input_ids": [*[1] * (n - 1), 9], "token_type_ids": [0] * n} for n in lengths]
        return OriginalRun(tokenizer=None, example={}, rows=rows, outputs={}, mask=np.ones((1, 1)))

    def widths(*given: OriginalRun) -> list[int]:
        neighbour = golden_text._neighbour(given)
        assert all(row["input_ids"][-1] == 9 for row in neighbour)
        return [len(row["input_ids"]) for row in neighbour]

    assert widths(asked(3), asked(28), asked(500, 510)) == [32]
    assert widths(asked(3), asked(50), asked(500)) == [54]
    assert widths(asked(3), asked(62), asked(70), asked(500)) == [64]
    assert widths(asked(3), asked(20)) == [20]
    assert widths(asked(300), asked(500)) == [500]
    assert widths(asked(100), asked(500)) == [200]
    assert widths() == []
    (beside,) = golden_text._neighbour([asked(3), asked(7)], [9, 5, 4])
    assert beside["input_ids"] == [1, 9, 5, 4, 1, 1, 9]
    (short,) = golden_text._neighbour([asked(3)], [9, 5, 4])
    assert short["input_ids"] == [1, 9, 9]


def test_a_tokenizer_under_another_name_is_the_one_that_records(tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert")
    # tokenizer.json beside it is another one: it knows no special tokens
    tiny.tokenizer(folder / "mine.json")
    tiny.tokenizer(folder / "tokenizer.json", special=False)
    made = build.build(BuildOptions(model=folder, tokenizer=folder / "mine.json"))
    other = build.build(BuildOptions(model=folder))
    answers = [
        next(file.content for file in each.files if file.path.endswith("smoke.json"))
        for each in (made, other)
    ]
    assert answers[0] != answers[1]


def test_a_text_without_any_token(tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert")
    tiny.tokenizer(folder / "tokenizer.json", special=False)
    made = text(folder)
    assert made.cases is not None
    empty = next(entry for entry in made.cases.cases if entry.name == "empty")
    assert empty.outputs[0].data == (0.0,) * tiny.WIDTH


def test_a_model_that_fails_on_a_long_text(tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path / "bert", length=16)
    with pytest.raises(TrbError) as caught:
        text(folder, max_length=20)
    assert caught.value.code == Code.GOLDEN_FAILED
    assert caught.value.message.startswith("the original model fails on ")


def test_a_gpu_multiplies_with_ten_bits_of_mantissa(tmp_path: Path) -> None:
    """TF32: what is proven there must outlive more noise, and says so."""
    folder = tiny.embedder(tmp_path / "bert")

    def recorded(device: str) -> Any:
        made = tiny.make(folder, tmp_path / device, golden=True, device=device)
        content = next(file.content for file in made.files if file.path == "bert/smoke.json")
        return json.loads(content)["tolerance"]

    assert recorded("cpu")["alone"] == 1e-4
    assert (recorded("gpu")["alone"], "TF32" in recorded("gpu")["reason"]) == (5e-3, True)
    scores = golden_text.outputs
    task = tasks.choose(reader.read_source(tiny.classifier(tmp_path / "c", labels=2)), None)[0]
    read = reader.read_source(tmp_path / "c")
    planned = task.plan(read, BuildOptions(model=tmp_path / "c"))
    near = {"scores": np.array([[0.49, 0.51]]), "label": np.array([[b"x"]]), "score": np.array([[0.51]])}
    assert [t.name for t in scores(planned, near, tolerance.ABSOLUTE)] == ["label", "score", "scores"]
    assert [t.name for t in scores(planned, near, tolerance.HALF)] == ["score", "scores"]


def test_pairs_are_no_longer_than_a_small_limit_needs(tmp_path: Path, output: Path) -> None:
    """The library keeps every two pieces of two long texts: eight gigabytes for a limit of seven tokens."""
    made = tiny.make(tiny.classifier(tmp_path / "m"), output, golden=True, max_length=7)
    recorded = next(file.content for file in made.files if file.path == "m/smoke.json")
    pairs = [case["inputs"] for case in json.loads(recorded)["cases"] if len(case["inputs"]) == 2]
    assert max(len(text["data"][0]) for inputs in pairs for text in inputs) == 16 * 7 + 200
    assert all(len(inputs) == 2 for inputs in pairs)


def test_rows_that_the_model_makes_alike(tmp_path: Path, output: Path) -> None:
    """The layer norm of two numbers says only which is larger: most pairs of rows do not differ."""
    nodes = [
        t.node("LayerNormalization", ["X", "one", "zero"], ["normed"], axis=-1),
        t.node("ReduceMean", ["normed"], ["mean"], axes=[0], keepdims=1),
        t.node("Sub", ["normed", "mean"], ["Y"]),
    ]
    constants = [t.constant("one", t.FLOAT, [2], [1, 1]), t.constant("zero", t.FLOAT, [2], [0, 0])]
    shape = ["batch", 2]
    content = t.model(nodes, [t.tensor("X", shape)], [t.tensor("Y", shape)], initializers=constants)
    (tmp_path / "m.onnx").write_bytes(content)
    made = tiny.make(tmp_path / "m.onnx", output, golden=True)
    assert made.notes == ("served without batching: rows of output 'Y' depend on each other",)
