"""The tokenizer model with more than one text in, or with more than tokens out."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import triton_python_backend_utils as pb_utils

from triton_repo_builder.base import resources

A, B, C, HELLO, THE, FOX = (tiny.WORDS.index(word) for word in ("a", "b", "c", "hello", "the", "fox"))


def model(folder: Path, inputs: tuple[str, ...], outputs: tuple[str, ...], **parameters: str) -> Any:
    shutil.copyfile(resources.runtime("tokenizer.py"), folder / "model.py")
    for name in ("long_texts.py", "metrics.py", "spans.py"):
        shutil.copyfile(resources.runtime(name), folder / name)
    tiny.tokenizer(folder / "tokenizer.json")
    spec = importlib.util.spec_from_file_location("tokenizer_model", folder / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.TritonPythonModel()
    config = {
        "max_batch_size": 32,
        "input": [{"name": name} for name in inputs],
        "output": [{"name": name, "data_type": "TYPE_INT32"} for name in outputs],
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
        "instance_group": [{"count": 1}],
    }
    made.initialize({"model_config": json.dumps(config)})
    return made


def request(**texts: list[str] | list[list[str]]) -> Any:
    tensors = []
    for name, rows in texts.items():
        values = [[row] if isinstance(row, str) else row for row in rows]
        array = np.array([[item.encode() for item in row] for row in values], dtype=object)
        tensors.append(pb_utils.Tensor(name, array))
    return pb_utils.InferenceRequest(tensors)


def answers(made: Any, *requests: Any) -> list[Any]:
    found: list[Any] = []
    for response in made.execute(list(requests)):
        error = response.error()
        found.append(
            error.message() if error else {t.name(): t.as_numpy().tolist() for t in response.output_tensors()}
        )
    return found


def test_pairs_have_types(tmp_path: Path) -> None:
    # An empty second text is none, as transformers' pipeline has it.
    made = model(tmp_path, ("TEXT", "TEXT_PAIR"), ("trb_tokens", "trb_types"))
    pair, single = answers(
        made, request(TEXT=["a b", "a"], TEXT_PAIR=["c", ""]), request(TEXT_PAIR=["c"], TEXT=["a"])
    )
    assert pair == {
        "trb_tokens": [[2, A, B, 3, C, 3], [2, A, 3, -1, -1, -1]],
        "trb_types": [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]],
    }
    # The order in which a request lists its inputs does not matter.
    assert single["trb_tokens"] == [[2, A, 3, C, 3]]


def test_a_text_pair_may_be_left_out(tmp_path: Path) -> None:
    made = model(tmp_path, ("TEXT", "TEXT_PAIR"), ("trb_tokens", "trb_types"))
    single, pair = answers(made, request(TEXT=["a"]), request(TEXT=["a"], TEXT_PAIR=["b"]))
    assert single == {"trb_tokens": [[2, A, 3]], "trb_types": [[0, 0, 0]]}
    assert pair["trb_tokens"] == [[2, A, 3, B, 3]]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("longest_first", [2, A, B, 3, C, FOX, 3]),
        ("only_first", [2, A, 3, C, FOX, THE, 3]),
        ("only_second", [2, A, B, C, 3, C, 3]),
    ],
)
def test_which_text_of_a_pair_is_cut(strategy: str, expected: list[int], tmp_path: Path) -> None:
    made = model(tmp_path, ("A", "B"), ("trb_tokens",), max_length="7", truncation=strategy)
    (found,) = answers(made, request(A=["a b c"], B=["c fox the"]))
    assert found["trb_tokens"] == [expected]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("limit", [11, 16])
@pytest.mark.parametrize("sizes", [(300, 300), (300, 301), (301, 300), (300, 140), (300, 600)])
def test_two_long_texts_are_cut_as_the_library_cuts_them(
    sizes: tuple[int, int], limit: int, side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But without the pieces that it makes of what it cuts off, which it joins each with each."""
    words = ["a", "b", "c", "the", "foxy", "hello"]
    random = np.random.default_rng(sum(sizes))
    pair = tuple(" ".join(random.choice(words, size)) for size in sizes)
    made = model(tmp_path, ("A", "B"), ("trb_tokens",), max_length=str(limit), truncation_side=side)
    (expected,) = made.tokenizer.encode_batch([pair])
    (encoding,) = made.encode([pair])
    assert encoding.ids == expected.ids
    assert 4 * len(encoding.overflowing) < len(expected.overflowing)
    # If a cut changed what is kept, as it may with a tokenizer that knows no words, nothing is cut off.
    monkeypatch.setattr(made.shortener, "cut", lambda text, *_: f"b{text}b")
    assert made.shortener(pair) == pair


def test_a_text_that_cannot_be_cut_fails_alone(tmp_path: Path) -> None:
    made = model(tmp_path, ("A", "B"), ("trb_tokens",), max_length="5", truncation="only_second")
    bad, good = answers(made, request(A=["a b c a b c"], B=["c"]), request(A=["a"], B=["b"]))
    assert bad.startswith("text 0 of input 'A' and 'B' cannot be tokenized: ")
    assert good["trb_tokens"] == [[2, A, 3, B, 3]]


def test_labels_make_hypotheses(tmp_path: Path) -> None:
    made = model(tmp_path, ("TEXT", "LABELS"), ("trb_tokens", "trb_types"), hypothesis="the {}")
    (found,) = answers(made, request(TEXT=["a", "b"], LABELS=[["b", "c"], ["hello", ""]]))
    first, second = found["trb_tokens"]
    assert first == [2, A, 3, THE, B, 3, -2, 2, A, 3, THE, C, 3]
    assert second == [2, B, 3, THE, HELLO, 3, -1, -1, -1, -1, -1, -1, -1]
    assert found["trb_types"][0] == [0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1]


def test_a_row_without_labels_fails_alone(tmp_path: Path) -> None:
    made = model(tmp_path, ("TEXT", "LABELS"), ("trb_tokens",), hypothesis="{}")
    bad, good = answers(
        made, request(TEXT=["a", "b"], LABELS=[["b"], [""]]), request(TEXT=["a"], LABELS=["c"])
    )
    assert bad == "row 1 of input 'LABELS' has no label"
    assert good["trb_tokens"] == [[2, A, 3, C, 3]]


def test_a_row_of_too_many_labels_fails_alone(tmp_path: Path) -> None:
    made = model(tmp_path, ("TEXT", "LABELS"), ("trb_tokens",), hypothesis="{}", most_rows="2")
    bad, good = answers(
        made, request(TEXT=["a"], LABELS=[["a", "b", "c"]]), request(TEXT=["a"], LABELS=[["a", "b"]])
    )
    assert bad.startswith(
        "row 0 of input 'LABELS' makes at least 3 rows of the model, 2 is the most (parameter most_rows"
    )
    assert good["trb_tokens"] == [[2, A, 3, A, 3, -2, 2, A, 3, B, 3]]


def test_a_text_of_too_many_pieces_fails_alone(tmp_path: Path) -> None:
    settings = {"max_length": "7", "stride": "2", "truncation": "only_second", "most_rows": "2"}
    made = model(tmp_path, ("QUESTION", "CONTEXT"), ("trb_tokens",), **settings)
    bad, good = answers(
        made,
        request(QUESTION=["a"], CONTEXT=["a b c hello fox"]),
        request(QUESTION=["a"], CONTEXT=["a b c b"]),
    )
    assert bad.startswith("row 0 of input 'CONTEXT' makes at least 3 rows of the model, 2 is the most")
    assert good["trb_tokens"] == [[2, A, 3, A, B, C, 3, -2, 2, A, 3, B, C, B, 3]]


def test_a_long_second_text_becomes_pieces_that_overlap(tmp_path: Path) -> None:
    made = model(
        tmp_path,
        ("QUESTION", "CONTEXT"),
        ("trb_tokens", "trb_spans"),
        max_length="7",
        stride="2",
        truncation="only_second",
        spans="words",
        cls_id="2",
        no_empty="true",
    )
    long, short, empty = answers(
        made,
        request(QUESTION=["a"], CONTEXT=["a b c hello fox"]),
        request(QUESTION=["a"], CONTEXT=["b"]),
        request(QUESTION=["a"], CONTEXT=[""]),
    )
    assert long["trb_tokens"] == [
        [2, A, 3, A, B, C, 3, -2, 2, A, 3, B, C, HELLO, 3, -2, 2, A, 3, C, HELLO, FOX, 3]
    ]
    spans = long["trb_spans"][0]
    assert spans[:8] == [
        [0, 0, 1, 0, 0],  # [CLS] stays a candidate, but is in no word
        [0, 1, -1, 0, 1],
        [0, 0, -1, 0, 0],
        [0, 1, 0, 0, 1],
        [2, 3, 0, 2, 3],
        [4, 5, 0, 4, 5],
        [0, 0, -1, 0, 0],
        [0, 0, -2, 0, 0],
    ]
    assert spans[-4:-1] == [[4, 5, 0, 4, 5], [6, 11, 0, 6, 11], [12, 15, 0, 12, 15]]
    assert short["trb_tokens"] == [[2, A, 3, B, 3]]
    assert empty == "text 0 of input 'CONTEXT' is empty"


def test_words_of_several_tokens_have_one_span(tmp_path: Path) -> None:
    made = model(tmp_path, ("Q", "C"), ("trb_spans",), spans="words")
    (found,) = answers(made, request(Q=["a"], C=["b foxa"]))
    assert found["trb_spans"][0][3:-1] == [[0, 1, 0, 0, 1], [2, 6, 0, 2, 5], [2, 6, 0, 5, 6]]


def test_spans_of_tokens_tell_where_words_go_on(tmp_path: Path) -> None:
    made = model(tmp_path, ("TEXT",), ("trb_tokens", "trb_spans"), spans="tokens", unk_id="1")
    (found,) = answers(made, request(TEXT=["foxa é 🗼 b", "a"]))
    assert found["trb_spans"][0] == [
        [0, 0, -1],
        [0, 3, 0],
        [3, 4, 1],
        [5, 6, 0],
        [7, 8, 0],
        [9, 10, 0],
        [0, 0, -1],
    ]
    assert found["trb_spans"][1] == [[0, 0, -1], [0, 1, 0], [0, 0, -1], *[[0, 0, -1]] * 4]


def test_a_text_without_what_it_needs_fails_alone(tmp_path: Path) -> None:
    made = model(
        tmp_path, ("TEXT",), ("trb_tokens",), required_id=str(FOX), required_token="fox", max_length="4"
    )
    bad, good, cut = answers(
        made, request(TEXT=["fox", "a"]), request(TEXT=["a fox"]), request(TEXT=["a b fox"])
    )
    assert bad == "text 1 of input 'TEXT' has no fox within the tokens that the model takes"
    assert good["trb_tokens"] == [[2, A, FOX, 3]]
    assert "text 0 of input 'TEXT' has no fox" in cut


def test_a_first_token_written_out_in_the_question_points_at_a_word_of_the_context(tmp_path: Path) -> None:
    """As transformers has it: it looks the token's word up in the context, whatever text it came from."""
    made = model(tmp_path, ("Q", "C"), ("trb_spans",), spans="words", cls_id="2")
    (found,) = answers(made, request(Q=["a [CLS]"], C=["b foxa"]))
    assert found["trb_spans"][0][2] == [2, 6, 0, 2, 7]
