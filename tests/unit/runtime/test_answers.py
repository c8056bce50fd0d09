"""Post-processing as the server runs it, through the stand-in for ``triton_python_backend_utils``."""

from __future__ import annotations

import ast
import json
import shutil
import sys
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils

from triton_repo_builder.base import resources
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks import (
    fill_mask,
    question_answering,
    token_classification,
    zero_shot_classification,
)

ANSWERS = sorted(path.name for path in resources.runtime("answers").glob("*.py"))


def load(folder: Path, module: str, outputs: tuple[TensorPlan, ...], **parameters: str) -> Any:
    """The model whose files lie in ``folder`` as in a repository."""
    shutil.copyfile(resources.runtime("postprocess.py"), folder / "model.py")
    for name in ("metrics.py", "spans.py"):
        shutil.copyfile(resources.runtime(name), folder / name)
    shutil.copyfile(resources.runtime(f"answers/{module}"), folder / "answer.py")
    spec = util.spec_from_file_location("postprocess_model", folder / "model.py")
    assert spec is not None
    assert spec.loader is not None
    code = util.module_from_spec(spec)
    spec.loader.exec_module(code)
    made = code.TritonPythonModel()
    config = {
        "max_batch_size": 8,
        "output": [{"name": o.name, "data_type": o.data_type, "dims": list(o.dims)} for o in outputs],
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
    }
    pb_utils.MetricFamily.made.clear()
    args = {"model_name": "bert_postprocess", "model_version": "3", "model_config": json.dumps(config)}
    made.initialize(args)
    return made


def request(**arrays: Any) -> Any:
    return pb_utils.InferenceRequest([pb_utils.Tensor(name, array) for name, array in arrays.items()])


def answers(made: Any, *requests: Any) -> list[Any]:
    """Per request its tensors by name, or the error's message."""
    found: list[Any] = []
    for response in made.execute(list(requests)):
        error = response.error()
        found.append(
            error.message() if error else {t.name(): t.as_numpy() for t in response.output_tensors()}
        )
    return found


def strings(*items: str) -> Any:
    return np.array([[item.encode()] for item in items], dtype=object)


def ner(folder: Path, aggregation: str) -> Any:
    labels = json.dumps(["O", "B-PER", "I-PER", "I-LOC"])
    return load(
        folder,
        "token_classification.py",
        token_classification.OUTPUTS,
        labels=labels,
        aggregation=aggregation,
    )


def counts(made: Any, name: str) -> dict[str, float]:
    """Numbers of one metric by its own label."""
    made.finalize()
    page = pb_utils.MetricFamily.page(model="bert_postprocess", version="3")
    return {
        series.partition("{")[2].rstrip("}"): number
        for series, number in page.items()
        if series.startswith(f"{name}{{") and number
    }


TEXT = "Zoë Özil 🗼"
# [CLS] Zo ##ë Öz ##il 🗼 [SEP], and a place that only a longer neighbour needs.
SPANS = [[0, 0, -1], [0, 2, 0], [2, 3, 1], [4, 6, 0], [6, 8, 1], [9, 10, 0], [0, 0, -1], [0, 0, -1]]
SCORES = [
    [1, 0, 0, 0],
    [0.1, 0.8, 0.1, 0],
    [0.0, 0.0, 0.1, 0.9],
    [0.3, 0.0, 0.7, 0],
    [0.6, 0.0, 0.4, 0],
    [0.9, 0.0, 0.0, 0.1],
    [1, 0, 0, 0],
    [0, 1, 0, 0],
]


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("none", [("B-PER", 0.8, "Zo"), ("I-LOC", 0.9, "ë"), ("I-PER", 0.7, "Öz")]),
        ("simple", [("PER", 0.8, "Zo"), ("LOC", 0.9, "ë"), ("PER", 0.7, "Öz")]),
        ("first", [("PER", 0.75, "Zoë Özil")]),
        ("max", [("LOC", 0.9, "Zoë"), ("PER", 0.7, "Özil")]),
        ("average", [("LOC", 0.45, "Zoë"), ("PER", 0.55, "Özil")]),
    ],
)
def test_tokens_become_entities(aggregation: str, expected: list[Any], tmp_path: Path) -> None:
    scores = np.array([SCORES, SCORES], np.float32)
    spans = np.array([SPANS, [[0, 0, -1]] * 8], np.int32)
    (found,) = answers(
        ner(tmp_path, aggregation), request(TEXT=strings(TEXT, ""), trb_spans=spans, trb_scores=scores)
    )
    entities = json.loads(found["entities"][0, 0])
    assert [(item["label"], item["text"]) for item in entities] == [(e[0], e[2]) for e in expected]
    assert [item["score"] for item in entities] == pytest.approx([e[1] for e in expected])
    assert found["label"][0].tolist() == [item["label"].encode() for item in entities]
    assert found["text"][0].tolist() == [item["text"].encode() for item in entities]
    assert found["start"].dtype == np.int32
    assert [TEXT[s:e] for s, e in zip(found["start"][0], found["end"][0], strict=True)] == [
        e[2] for e in expected
    ]
    # The second row has no entity: its part of the arrays is empty.
    assert found["entities"][1, 0] == b"[]"
    assert set(found["label"][1].tolist()) == {b""}


def test_a_text_without_entities_gives_arrays_without_elements(tmp_path: Path) -> None:
    outside = np.zeros((1, 2, 4), np.float32) + np.array([1, 0, 0, 0], np.float32)
    spans = np.array([[[0, 1, 0], [1, 2, 0]]], np.int32)
    (found,) = answers(
        ner(tmp_path, "simple"), request(TEXT=strings("ab"), trb_spans=spans, trb_scores=outside)
    )
    assert found["label"].shape == found["score"].shape == (1, 0)


def test_a_score_that_is_no_number_is_valid_json(tmp_path: Path) -> None:
    scores = np.array([[[0, np.nan, 0, 0]]], np.float32)
    spans = np.array([[[0, 2, 0]]], np.int32)
    (found,) = answers(ner(tmp_path, "none"), request(TEXT=strings("ab"), trb_spans=spans, trb_scores=scores))
    assert b"NaN" not in found["entities"][0, 0]
    assert json.loads(found["entities"][0, 0])[0]["score"] is None


def test_a_text_that_ends_with_a_nul_stays_whole(tmp_path: Path) -> None:
    scores = np.array([[[0, 1, 0, 0]]], np.float32)
    spans = np.array([[[0, 2, 0]]], np.int32)
    (found,) = answers(
        ner(tmp_path, "none"), request(TEXT=strings("a\0"), trb_spans=spans, trb_scores=scores)
    )
    assert found["text"].tolist() == [[b"a\0"]]


def question(folder: Path, impossible: str = "false") -> Any:
    return load(folder, "question_answering.py", question_answering.OUTPUTS, impossible=impossible)


def asked(context: str, spans: Any, starts: Any, ends: Any) -> Any:
    return request(
        CONTEXT=strings(context),
        trb_spans=np.array([spans], np.int32),
        trb_starts=np.array([starts], np.float32),
        trb_ends=np.array([ends], np.float32),
    )


CONTEXT = "Élan in Köln 🗼"
# [CLS] who [SEP] | Élan | in | Kö ##ln: its word | 🗼 | [SEP]
PIECE = [
    [0, 0, 1, 0, 0],
    [0, 3, -1, 0, 3],
    [0, 0, -1, 0, 0],
    [0, 4, 0, 0, 4],
    [5, 7, 0, 5, 7],
    [8, 12, 0, 8, 10],
    [8, 12, 0, 10, 12],
    [13, 14, 0, 13, 14],
    [0, 0, -1, 0, 0],
]
NO_MORE = [0, 0, -1, 0, 0]


def test_the_best_span_is_whole_words(tmp_path: Path) -> None:
    starts, ends = [9, 9, 9, 0, 0, 0, 5, 0, 9], [9, 9, 9, 0, 0, 0, 4, 0, 9]
    starts[0] = ends[0] = -9
    (found,) = answers(question(tmp_path), asked(CONTEXT, PIECE, starts, ends))
    assert {name: value[0, 0] for name, value in found.items() if name != "score"} == {
        "answer": "Köln".encode(),
        "start": 8,
        "end": 12,
    }
    # Both tokens of the word, and the pair of them, are one answer: their scores add up.
    share = np.exp([5, 0]) / (np.exp(5) + 4 + np.exp(-9))
    other = np.exp([4, 0]) / (np.exp(4) + 4 + np.exp(-9))
    total = share[0] * other[0] + share[1] * other[0] + share[1] * other[1]
    assert found["score"][0, 0] == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize(("impossible", "answer"), [("true", b""), ("false", "Köln".encode())])
def test_no_answer_is_one_only_where_it_may_be(impossible: str, answer: bytes, tmp_path: Path) -> None:
    logits = [9, 0, 0, 0, 0, 2, 0, 0, 0]
    (found,) = answers(question(tmp_path, impossible), asked(CONTEXT, PIECE, logits, logits))
    assert found["answer"][0, 0] == answer


def test_an_answer_is_the_same_to_the_last_digit_beside_longer_rows(tmp_path: Path) -> None:
    logits = np.random.default_rng(0).normal(0, 3, 200)
    spans = [PIECE[0], *([n, n + 1, 0, n, n + 1] for n in range(198)), NO_MORE]
    made = question(tmp_path)
    scores = set()
    for padding in range(40):
        wide = np.pad(logits, (0, padding))
        (found,) = answers(made, asked("abcdefghij" * 20, [*spans, *[NO_MORE] * padding], wide, wide))
        scores.add(float(found["score"][0, 0]))
    assert len(scores) == 1


def test_the_best_of_all_pieces(tmp_path: Path) -> None:
    spans = [*PIECE[:5], [0, 0, -2, 0, 0], *PIECE[:3], *PIECE[7:], NO_MORE, NO_MORE]
    starts = [0.0] * len(spans)
    starts[9] = 6
    (found,) = answers(question(tmp_path), asked(CONTEXT, spans, starts, starts))
    assert found["answer"][0, 0] == "🗼".encode()


def test_a_context_without_candidates_has_an_empty_answer(tmp_path: Path) -> None:
    (found,) = answers(question(tmp_path), asked("  ", PIECE[:3], [1, 1, 1], [1, 1, 1]))
    assert (found["answer"][0, 0], found["score"][0, 0]) == (b"", 0)


def test_an_answer_is_at_most_fifteen_tokens(tmp_path: Path) -> None:
    spans = [PIECE[0], *([n, n + 1, 0, n, n + 1] for n in range(40))]
    starts, ends = [0.0] * 41, [0.0] * 41
    starts[5], ends[20], ends[19] = 9, 9, 8
    (found,) = answers(question(tmp_path), asked("abcdefghij" * 4, spans, starts, ends))
    assert (found["start"][0, 0], found["end"][0, 0]) == (4, 19)


def test_a_span_from_a_token_without_a_word_is_not_widened(tmp_path: Path) -> None:
    spans = [PIECE[0], [5, 6, 1, 5, 6], *PIECE[5:7]]
    starts, ends = [0, 9, 0, 0], [0, 0, 9, 0]
    (found,) = answers(question(tmp_path), asked(CONTEXT, spans, starts, ends))
    assert found["answer"][0, 0] == CONTEXT[5:10].encode()


def shot(folder: Path, multi: str) -> Any:
    return load(folder, "zero_shot_classification.py", zero_shot_classification.OUTPUTS, multi_label=multi)


@pytest.mark.parametrize("multi", ["true", "false"])
def test_labels_in_the_order_of_their_scores(multi: str, tmp_path: Path) -> None:
    logits = np.array([[[3, 1], [0, 2], [9, 9]], [[1, 2], [7, 7], [7, 7]]], np.float32)
    labels = np.array([[b"a", "天気".encode()], [b"only", b""]], dtype=object)
    (found,) = answers(shot(tmp_path, multi), request(LABELS=labels, trb_logits=logits))
    assert found["labels"].tolist() == [["天気".encode(), b"a"], [b"only", b""]]
    pairs = np.exp([2, 1]) / (np.exp([2, 1]) + np.exp([0, 3]))
    among = np.exp([2, 1]) / np.exp([2, 1]).sum()
    np.testing.assert_allclose(found["scores"][0], pairs if multi == "true" else among, rtol=1e-5)
    # A single label is judged by itself in either case.
    np.testing.assert_allclose(found["scores"][1], [np.exp(2) / (np.exp(1) + np.exp(2)), 0], rtol=1e-5)


def test_masks_of_each_row(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text(json.dumps(["a", "é", "##s"]), encoding="utf-8")
    outputs = tuple(
        TensorPlan(name=name, data_type=kind, dims=(-1, 2))
        for name, kind in (("tokens", "TYPE_STRING"), ("scores", "TYPE_FP32"), ("ids", "TYPE_INT32"))
    )
    made = load(tmp_path, "fill_mask.py", outputs, mask_id="7")
    tokens = np.array([[1, 7, 7, 1], [7, 1, -1, -1]], np.int32)
    ids = np.array([[[1, 0], [2, 9], [0, 0]]] * 2, np.int32)
    scores = np.full((2, 3, 2), 0.25, np.float32)
    one, both = answers(
        made,
        request(trb_tokens=tokens[1:], trb_ids=ids[1:], trb_scores=scores[1:]),
        request(trb_tokens=tokens, trb_ids=ids, trb_scores=scores),
    )
    assert one["tokens"].tolist() == [[["é".encode(), b"a"]]]
    # The model may have more rows than the tokenizer has tokens.
    assert both["tokens"].tolist() == [
        [["é".encode(), b"a"], [b"##s", b""]],
        [["é".encode(), b"a"], [b"", b""]],
    ]
    assert both["scores"][1, 1].tolist() == [0, 0]
    assert fill_mask.TOP_K == 5


def test_entities_are_counted_by_type(tmp_path: Path) -> None:
    made = ner(tmp_path, "none")
    scores, spans = np.array([SCORES, SCORES], np.float32), np.array([SPANS, SPANS], np.int32)
    answers(made, request(TEXT=strings(TEXT, TEXT), trb_spans=spans, trb_scores=scores))
    assert counts(made, "trb_entities_total") == {'type="PER"': 4, 'type="LOC"': 2}


def test_answers_and_questions_without_are_counted(tmp_path: Path) -> None:
    made = question(tmp_path, "true")
    for best in (0, 0, 5):
        logits = [9 * (place == best) for place in range(9)]
        answers(made, asked(CONTEXT, PIECE, logits, logits))
    assert counts(made, "trb_question_answers_total") == {'outcome="answer"': 1, 'outcome="none"': 2}


def test_best_labels_and_their_scores_are_counted(tmp_path: Path) -> None:
    made = shot(tmp_path, "true")
    labels = np.array([["天気".encode(), b"b"]] * 3, dtype=object)
    logits = np.array([[[0, 9], [9, 0]], [[0, 9], [9, 0]], [[0, -9], [0, 0]]], np.float32)
    answers(made, request(LABELS=labels, trb_logits=logits))
    assert counts(made, "trb_answers_total") == {'label="天気"': 2, 'label="b"': 1}
    buckets = counts(made, "trb_answer_confidence_bucket")
    assert (buckets['le="0.5"'], buckets['le="0.99"'], buckets['le="1"']) == (1, 1, 3)
    assert 'le="0.4"' not in buckets


def test_characters_of_transcripts_are_counted(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text(json.dumps(["_", "|", "é", "a"]), encoding="utf-8")
    text = TensorPlan(name="text", data_type="TYPE_STRING", dims=(1,))
    made = load(tmp_path, "speech_recognition.py", (text,), blank="_", delimiter="|")
    ids = np.array([[2, 2, 0, 2, 3], [0, 0, 0, 0, 0]], np.int32)
    (found,) = answers(made, request(trb_ids=ids))
    assert found["text"].tolist() == [["ééa".encode()], [b""]]
    buckets = counts(made, "trb_transcript_characters_bucket")
    assert (buckets['le="1"'], buckets['le="4"'], buckets['le="+Inf"']) == (1, 2, 2)
    page = pb_utils.MetricFamily.page(model="bert_postprocess", version="3")
    assert (page["trb_batch_rows_sum"], page['trb_phase_seconds_count{phase="answer"}']) == (2, 1)


def test_one_row_that_fails_fails_its_request_alone(tmp_path: Path) -> None:
    made = shot(tmp_path, "false")
    inner = made.task.answer

    def choosy(row: Any) -> Any:
        if b"bad" in row["LABELS"].tolist():
            raise ValueError("no way")
        return inner(row)

    made.task.answer = choosy
    logits = np.zeros((1, 1, 2), np.float32)
    good, bad = answers(
        made,
        request(LABELS=np.array([[b"a"]], dtype=object), trb_logits=logits),
        request(LABELS=np.array([[b"bad"]], dtype=object), trb_logits=logits),
    )
    assert good["labels"].tolist() == [[b"a"]]
    assert bad == "no way"


@pytest.mark.parametrize("name", ["postprocess.py", *(f"answers/{name}" for name in ANSWERS)])
def test_imports_are_those_of_the_server(name: str) -> None:
    tree = ast.parse(resources.runtime(name).read_text(), feature_version=(3, 10))
    names = set()
    for item in ast.walk(tree):
        if isinstance(item, ast.Import):
            names |= {alias.name.split(".")[0] for alias in item.names}
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0
            names.add(str(item.module).split(".")[0])
    assert names - {"numpy", "triton_python_backend_utils"} <= sys.stdlib_module_names
