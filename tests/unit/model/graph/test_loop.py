"""The loop over groups of rows: whatever else is in a batch, an answer is that of the row alone."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
import tiny
import tiny_onnx as t
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_repo_builder.base import releases
from triton_repo_builder.endpoint.plan import text_padding
from triton_repo_builder.model.graph import compose, ragged
from triton_repo_builder.model.graph.parts import Head, Rows
from triton_repo_builder.model.read import skeleton
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce import build
from triton_repo_builder.repository import tensor_names

MODELS = Path(__file__).parents[3] / "data" / "models"
LOOPS = (Rows.GROUPS, Rows.SINGLE)
INPUTS = [("input_ids", 7), ("attention_mask", 7), ("token_type_ids", 7)]
Run = Callable[[list[list[int]]], dict[str, npt.NDArray[Any]]]


def opened(model: bytes, weights: Path, folder: Path) -> Run:
    """Asks the composed model for rows of tokens, as Triton hands them over."""
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model)
    shutil.copyfile(weights, folder / "weights.onnx")
    path = str(folder / "model.onnx")
    # As the embedded backend opens it.
    session = onnxruntime.InferenceSession(path, disabled_optimizers=["SkipLayerNormFusion"])
    names = {item.name for item in session.get_inputs()}
    outputs = [item.name for item in session.get_outputs()]

    def run(rows: list[list[int]]) -> dict[str, npt.NDArray[Any]]:
        feed: dict[str, npt.NDArray[Any]] = {
            tensor_names.TOKENS: np.array([token for row in rows for token in row], np.int32),
            tensor_names.LENGTHS: np.array([[len(row)] for row in rows], np.float32),
        }
        feed[tensor_names.TYPES] = np.zeros_like(feed[tensor_names.TOKENS])
        taken = {name: array for name, array in feed.items() if name in names}
        return dict(zip(outputs, session.run(None, taken), strict=True))

    return run


def composed(
    path: Path, folder: Path, rows: Rows, head: Head | None = None, most: int = ragged.MOST, **fill: float
) -> Run:
    front = ragged.front(INPUTS, pad_id=0, types=False, rows=rows, most=most)
    content = compose.compose(
        skeleton.read(path),
        weights="weights.onnx",
        head=head,
        release=releases.default(),
        front=type(front)(text=front.text, group=front.group, fill=fill),
    )
    run = opened(content, path, folder)
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    return run


TASKS = {
    "embedding/minilm_fp32": (),
    "embedding/classifier": (),
    "tasks/mlm": (4,),  # [MASK]
    "tasks/ner": (),
    "tasks/qa": (-2,),
    "tasks/nli": (),
    "retrieval/splade": (),
    "retrieval/colbert": (),
}
"""A model of each kind of head, and tokens that its rows have besides."""


@pytest.mark.parametrize("rows", (*LOOPS, Rows.PACKED))
@pytest.mark.parametrize("model", TASKS)
def test_every_head_answers_a_row_as_it_does_alone(
    model: str, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(how: Rows) -> Run:
        monkeypatch.setattr(text_padding, "_rows", lambda *_: (how, "a test"))
        made = build.build(BuildOptions(model=MODELS / model, golden=False, name="m"))
        content = next(f for f in made.files if f.path == "m_model/1/model.onnx").content
        assert content is not None
        return opened(content, MODELS / model / "model.onnx", tmp_path / how.value)

    random = np.random.default_rng(0)
    alone, together = run(Rows.PADDED), run(rows)
    lengths = [3, 40, 4, 11, 12, 40, 1, 7, 90, 2]
    texts = [[2, *random.integers(5, 400, max(n - 2, 0)).tolist(), 3] for n in lengths]
    for nth, extra in enumerate(TASKS[model] * 5):
        texts[nth][1 + nth : 1 + nth] = [extra, 17, 18]
    answers = together(texts)
    for number, text in enumerate(texts):
        for name, expected in alone([text]).items():
            answer = answers[name][number]
            if name in ("trb_scores", "trb_ids") and model == "tasks/mlm":
                answer = answer[: expected.shape[1]]
            own = answer[tuple(slice(size) for size in expected.shape[1:])]
            if expected.dtype.kind == "f":
                # Logits of spans are up to 10, whose last digits are larger.
                far = max(2e-6, 5e-7 * float(np.abs(expected).max()))
                np.testing.assert_allclose(
                    own, expected[0], rtol=1e-7, atol=far, err_msg=f"{name} of row {number}"
                )
            else:
                assert own.tolist() == expected[0].tolist(), f"{name} of row {number}"


LONG = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=40), min_size=1, max_size=20)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[Rows, Run]:
    folder = tmp_path_factory.mktemp("runs")
    path = tiny.text_model(folder / "model.onnx")
    return {
        rows: composed(path, folder / rows.value, rows, last_hidden_state=-7.0)
        for rows in (Rows.PADDED, *LOOPS)
    }


@settings(deadline=None)
@given(texts=LONG)
def test_an_answer_does_not_depend_on_its_neighbours(runs: dict[Rows, Run], texts: list[list[int]]) -> None:
    longest = max(map(len, texts))
    for rows in LOOPS:
        answers = runs[rows](texts)["last_hidden_state"]
        assert answers.shape == (len(texts), longest, tiny.WIDTH)
        for answer, text in zip(answers, texts, strict=True):
            alone = runs[rows]([text])["last_hidden_state"][0]
            if rows is Rows.SINGLE:
                assert np.array_equal(answer[: len(text)], alone)
            np.testing.assert_allclose(answer[: len(text)], alone, atol=1e-6)
    assert (answers[-1][len(texts[-1]) :] == -7.0).all()  # what fills up the rows of the shorter groups


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Rows, Run]]:
    """The rows and the width of each row's group, seen by a model that counts them.

    40 tokens at most, and of rows of more than 10 tokens 400 pairs of them.
    """
    folder = tmp_path_factory.mktemp("counted")
    path = counting(folder / "model.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ragged, "WIDE", 10)
        yield {rows: composed(path, folder / rows.value, rows, most=40) for rows in (*LOOPS, Rows.PACKED)}


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=9))
def test_the_groups_are_the_cheapest_of_all(counted: dict[Rows, Run], lengths: list[int]) -> None:
    groups = counted[Rows.GROUPS]([[5] * length for length in lengths])
    rows, widths = groups["n"].ravel(), groups["width"].ravel()
    assert (widths >= lengths).all()
    assert all(count == 1 or _fits(count, width) for count, width in zip(rows, widths, strict=True))
    assert float((widths + ragged.RUN / rows).sum()) == pytest.approx(cheapest(sorted(lengths)))
    assert (counted[Rows.SINGLE]([[5] * length for length in lengths])["n"] == 1).all()


def _fits(rows: int, width: int) -> bool:
    return rows * width <= 40 and rows * width * width <= 400


def cheapest(lengths: list[int]) -> float:
    """The cost of the best of all ways to cut the sorted lengths into groups."""
    ways = product((False, True), repeat=len(lengths) - 1)
    return min(cost for way in ways if (cost := _cost(lengths, way)) is not None)


def _cost(lengths: list[int], cuts: Sequence[bool]) -> float | None:
    places = [0, *(place for place, cut in enumerate(cuts, 1) if cut), len(lengths)]
    cost = 0.0
    for begin, end in pairwise(places):
        if end - begin > 1 and not _fits(end - begin, lengths[end - 1]):
            return None
        cost += (end - begin) * lengths[end - 1] + ragged.RUN
    return cost


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=9))
def test_packed_rows_are_cut_where_tokens_or_padding_are_too_many(
    counted: dict[Rows, Run], lengths: list[int]
) -> None:
    packs: dict[int, list[int]] = defaultdict(list)
    tokens = 0
    for before, length in enumerate(sorted(lengths)):
        packs[tokens // 40 + (before * length - tokens) // 40].append(length)
        tokens += length
    for own in packs.values():
        assert sum(own) <= 40 + own[-1]
        assert len(own) * own[-1] - sum(own) <= 40
    seen = counted[Rows.PACKED]([[5] * length for length in lengths])
    expected = [(len(own), own[-1]) for own in packs.values() for _ in own]
    assert sorted(zip(seen["n"].ravel(), seen["width"].ravel(), strict=True)) == sorted(expected)


def test_texts_of_like_length_run_together_and_a_far_longer_one_alone(counted: dict[Rows, Run]) -> None:
    groups = counted[Rows.GROUPS]([[5] * length for length in (8, 9, 8, 40, 9)])
    assert groups["n"].ravel().tolist() == [4, 4, 4, 1, 4]


def counting(path: Path) -> Path:
    """input_ids → for each row, how many rows there were, and their width."""
    nodes = [
        t.node("Cast", ["input_ids"], ["ids"], to=t.FLOAT),
        t.node("ReduceMax", ["ids"], ["most"], axes=[1], keepdims=1),
        t.node("Sub", ["most", "most"], ["none"]),
        t.node("Shape", ["input_ids"], ["shape"]),
        t.node("Gather", ["shape", "zero"], ["count"]),
        t.node("Cast", ["count"], ["float_count"], to=t.FLOAT),
        t.node("Add", ["none", "float_count"], ["n"]),
        t.node("Gather", ["shape", "one"], ["columns"]),
        t.node("Cast", ["columns"], ["float_columns"], to=t.FLOAT),
        t.node("Add", ["none", "float_columns"], ["width"]),
    ]
    inputs = [t.tensor(name, ["B", "T"], t.INT64) for name, _ in INPUTS]
    outputs = [t.tensor("n", ["B", 1]), t.tensor("width", ["B", 1])]
    constants = [t.constant(name, t.INT64, [], [value]) for name, value in (("zero", 0), ("one", 1))]
    graph = onnx.helper.make_graph(nodes, "count", inputs, outputs, constants)
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.mark.parametrize("dtype", [t.FLOAT, onnx.TensorProto.FLOAT16])
def test_outputs_of_any_type_and_what_is_given_out_as_it_is(dtype: int, tmp_path: Path) -> None:
    """Numbers of 16 bits per token, and an input that is an output as well."""
    path = tiny.text_model(tmp_path / "m.onnx", dtype=dtype)
    model = onnx.load(path)
    model.graph.output.append(t.tensor("input_ids", ["batch", "sequence"], t.INT64))
    model.graph.output[0].type.tensor_type.elem_type = dtype
    onnx.save(model, path)
    texts = [[5, 6, 7, 8, 9], [10], [11, 12, 13]]
    padded = composed(path, tmp_path / "padded", Rows.PADDED)
    for rows in LOOPS:
        answers = composed(path, tmp_path / rows.value, rows)(texts)
        assert answers["input_ids"].tolist() == [[5, 6, 7, 8, 9], [10, 0, 0, 0, 0], [11, 12, 13, 0, 0]]
        for number, text in enumerate(texts):
            expected = padded([text])["last_hidden_state"][0]
            own = answers["last_hidden_state"][number, : len(text)]
            assert own.dtype == expected.dtype
            np.testing.assert_allclose(own, expected, atol=1e-6 if dtype == t.FLOAT else 1e-2)
