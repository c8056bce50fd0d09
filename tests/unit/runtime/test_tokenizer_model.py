"""The tokenizer model as the server runs it, through the stand-in for ``triton_python_backend_utils``."""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import triton_python_backend_utils as pb_utils

from triton_repo_builder.base import resources

SOURCE = resources.runtime("tokenizer.py")
TYPES = {"INT32": np.int32, "INT64": np.int64}


MADE: list[Any] = []


@pytest.fixture(autouse=True)
def _metrics() -> Iterator[None]:
    """No model delivers its numbers late, onto the metrics page of another test."""
    yield
    while MADE:
        MADE.pop().finalize()


def model(
    folder: Path,
    *,
    outputs: tuple[str, ...] = ("input_ids", "attention_mask", "token_type_ids"),
    datatype: str = "INT64",
    special: bool = True,
    batched: bool = True,
    **parameters: int | str,
) -> Any:
    """A loaded model whose file and tokenizer lie in ``folder`` as in a repository."""
    shutil.copyfile(SOURCE, folder / "model.py")
    for name in ("long_texts.py", "metrics.py", "spans.py"):
        shutil.copyfile(resources.runtime(name), folder / name)
    tiny.tokenizer(folder / "tokenizer.json", special=special)
    spec = util.spec_from_file_location("tokenizer_model", folder / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.TritonPythonModel()
    config = {
        "max_batch_size": 32 if batched else 0,
        "output": [{"name": name, "data_type": f"TYPE_{datatype}"} for name in outputs],
        "parameters": {key: {"string_value": str(value)} for key, value in parameters.items()},
        "instance_group": [{"count": 1}],
    }
    pb_utils.MetricFamily.made.clear()
    made.initialize(
        {"model_config": json.dumps(config), "model_name": "bert_tokenizer", "model_version": "1"}
    )
    MADE.append(made)
    return made


def request(*texts: str | bytes, rows: bool = True) -> Any:
    items = np.array([text.encode() if isinstance(text, str) else text for text in texts], dtype=object)
    return pb_utils.InferenceRequest([pb_utils.Tensor("TEXT", items.reshape(-1, 1) if rows else items)])


def answers(made: Any, *requests: Any) -> list[Any]:
    """Per request its tensors by name, or the error's message."""
    found: list[Any] = []
    for response in made.execute(list(requests)):
        error = response.error()
        found.append(
            error.message() if error else {t.name(): t.as_numpy().tolist() for t in response.output_tensors()}
        )
    return found


@pytest.mark.parametrize(("split", "special"), [({}, 1), ({"split_special_tokens": "true"}, 0)])
def test_special_tokens_in_a_text(split: dict[str, str], special: int, tmp_path: Path) -> None:
    (answer,) = answers(model(tmp_path, **split), request("the [MASK] fox [SEP] a"))
    assert answer["input_ids"][0][1:-1].count(tiny.WORDS.index("[SEP]")) == special
    assert answer["input_ids"][0][-1] == tiny.WORDS.index("[SEP]")


def test_the_longest_row_of_each_request_decides(tmp_path: Path) -> None:
    first, second = answers(model(tmp_path, pad_id=9), request("hello", "the fox a"), request("a"))
    hello, the, fox, a = (tiny.WORDS.index(word) for word in ("hello", "the", "fox", "a"))
    assert first == {
        "input_ids": [[2, hello, 3, 9, 9], [2, the, fox, a, 3]],
        "attention_mask": [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]],
        "token_type_ids": [[0] * 5] * 2,
    }
    assert second["input_ids"] == [[2, a, 3]]


def test_the_longest_row_of_all_requests_decides(tmp_path: Path) -> None:
    """So that Triton joins them: it joins equal shapes only. One that fails counts for nothing."""
    made = model(tmp_path, pad_id=9, pad_together="true")
    first, bad, second = answers(made, request("hello", ""), request(b"\xff" * 40), request("the fox a"))
    assert [len(row) for row in (*first["input_ids"], *second["input_ids"])] == [5, 5, 5]
    assert first["attention_mask"] == [[1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]
    assert isinstance(bad, str)
    (alone,) = answers(made, request("a"))
    assert len(alone["input_ids"][0]) == 3


def test_a_prompt_goes_before_every_text(tmp_path: Path) -> None:
    (plain,) = answers(model(tmp_path), request("hello a", "hello", "hello the fox"))
    (made,) = answers(model(tmp_path, prompt="hello "), request("a", "", "the fox"))
    assert made == plain
    (cut,) = answers(model(tmp_path, prompt="hello ", max_length=4), request("a b c"))
    assert cut["input_ids"] == [[2, tiny.WORDS.index("hello"), tiny.WORDS.index("a"), 3]]


def test_one_call_encodes_all_requests(tmp_path: Path) -> None:
    made = model(tmp_path)
    tokenizer, calls = made.tokenizer, []

    class Counting:
        def encode_batch_fast(self, texts: list[str]) -> Any:
            calls.append(list(texts))
            return tokenizer.encode_batch_fast(texts)

    made.tokenizer = Counting()
    answers(made, request("a", "b"), request("c"), request("d", "e"))
    assert calls == [["a", "b", "c", "d", "e"]]


def test_threads_share_what_is_worth_it_unless_the_user_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On busy cores the library's threads wait for their turn, longer than a few short texts take."""
    name = "TOKENIZERS_PARALLELISM"
    monkeypatch.delenv(name, raising=False)
    made = model(tmp_path)
    assert os.environ[name] == "false"
    few, many = request("a b c", "d e"), request(*["a " * 100] * 30)
    for given, expected in ((few, "false"), (many, "true"), (few, "false")):
        answers(made, given)
        assert os.environ[name] == expected
    monkeypatch.setenv(name, "true")
    made = model(tmp_path)
    answers(made, few)
    assert os.environ[name] == "true"


def test_padding_and_truncation_saved_in_the_file_are_off(tmp_path: Path) -> None:
    (long,) = answers(model(tmp_path), request("a " * 50))
    assert len(long["input_ids"][0]) == 52
    (short,) = answers(model(tmp_path), request("a"))
    assert len(short["input_ids"][0]) == 3


def test_truncation_keeps_the_special_tokens(tmp_path: Path) -> None:
    (cut,) = answers(model(tmp_path, max_length=5), request("a b c d e f"))
    assert [len(cut["input_ids"][0]), cut["input_ids"][0][0], cut["input_ids"][0][-1]] == [5, 2, 3]


def test_the_start_is_cut_off_where_the_tokenizer_says_so(tmp_path: Path) -> None:
    (whole,) = answers(model(tmp_path), request("a b c d e f"))
    (cut,) = answers(model(tmp_path, max_length=5, truncation_side="left"), request("a b c d e f"))
    assert cut["input_ids"][0] == [2, *whole["input_ids"][0][-4:]]


def test_positions_that_count_from_the_pad_id(tmp_path: Path) -> None:
    outputs = ("input_ids", "position_ids")
    made = model(tmp_path, outputs=outputs, pad_id=1, positions_from_pad="true")
    (found,) = answers(made, request("a b", "a"))
    assert found["position_ids"] == [[2, 3, 4, 5], [2, 3, 4, 1]]


@pytest.mark.parametrize("length", [0, 1, 6, 200])
def test_a_fixed_width(length: int, tmp_path: Path) -> None:
    (found,) = answers(model(tmp_path, max_length=8, pad_to=8), request("a " * length, ""))
    assert np.shape(found["input_ids"]) == np.shape(found["attention_mask"]) == (2, 8)
    assert sum(found["attention_mask"][0]) == min(length + 2, 8)


@pytest.mark.parametrize("datatype", sorted(TYPES))
def test_types(datatype: str, tmp_path: Path) -> None:
    made = model(
        tmp_path, datatype=datatype, outputs=("input_ids", "attention_mask", "token_type_ids", "position_ids")
    )
    (response,) = made.execute([request("a b", "a")])
    assert {tensor.as_numpy().dtype for tensor in response.output_tensors()} == {np.dtype(TYPES[datatype])}
    positions = response.output_tensors()[3].as_numpy().tolist()
    assert positions == [[0, 1, 2, 3], [0, 1, 2, 0]]


def test_ragged_tokens_are_the_ids_alone(tmp_path: Path) -> None:
    made = model(tmp_path, outputs=("trb_tokens", "trb_types"), datatype="INT32", pad_id=9)
    several, one = answers(made, request("hello", "the fox a"), request("a"))
    hello, the, fox, a = (tiny.WORDS.index(word) for word in ("hello", "the", "fox", "a"))
    assert several["trb_tokens"] == [[2, hello, 3, -1, -1], [2, the, fox, a, 3]]
    assert one == {"trb_tokens": [[2, a, 3]], "trb_types": [[0, 0, 0]]}


def test_a_panic_of_the_library_fails_its_text_alone(tmp_path: Path) -> None:
    class Panic(BaseException):
        """As pyo3's PanicException: no Exception."""

    made = model(tmp_path)
    tokenizer = made.tokenizer

    class Panicking:
        def encode_batch_fast(self, texts: list[str]) -> Any:
            if "boom" in texts:
                raise Panic("boom")
            return tokenizer.encode_batch_fast(texts)

    made.tokenizer = Panicking()
    good, bad = answers(made, request("a"), request("boom"))
    assert len(good["input_ids"][0]) == 3
    assert "cannot be tokenized: boom" in bad


def test_it_is_ready_after_a_panic_if_the_library_still_encodes(tmp_path: Path) -> None:
    class Panic(BaseException):
        """As pyo3's PanicException: no Exception."""

    class Panicking:
        broken = False

        def encode_batch_fast(self, texts: list[str]) -> Any:
            self.broken = self.broken or "lock" in texts
            if self.broken or "boom" in texts:
                raise Panic("boom")
            return tokenizer.encode_batch_fast(texts)

    made = model(tmp_path)
    tokenizer, made.tokenizer = made.tokenizer, Panicking()
    assert made.is_ready() is True
    answers(made, request("boom"))
    assert made.is_ready() is True
    answers(made, request("lock"))
    assert made.is_ready() is False


def test_it_is_not_ready_while_an_execution_is_stuck(tmp_path: Path) -> None:
    made = model(tmp_path)
    seen: list[bool] = []
    real = made.encodings

    def encodings(texts: list[Any]) -> Any:
        seen.append(made.is_ready())
        made.busy._since -= 61
        seen.append(made.is_ready())
        return real(texts)

    made.encodings = encodings
    answers(made, request("a"))
    assert seen == [True, False]
    assert made.is_ready() is True


def test_a_text_that_there_is_no_memory_for_fails_alone(tmp_path: Path) -> None:
    good, bad = answers(model(tmp_path, most_tokens=5), request("a a a"), request("a", "a a a a"))
    assert not isinstance(good, str)
    assert bad == (
        "text 1 of input 'TEXT' has 6 tokens, and there is memory for 5 (parameter most_tokens in the "
        "tokenizer's config.pbtxt)"
    )


def test_a_token_beyond_the_vocabulary_fails_alone(tmp_path: Path) -> None:
    fox = tiny.WORDS.index("fox")
    good, bad = answers(model(tmp_path, vocabulary=fox), request("a"), request("a", "the fox"))
    assert len(good["input_ids"][0]) == 3
    assert bad == "text 1 of input 'TEXT' has the token fox, which the model does not know"
    (cut,) = answers(model(tmp_path, vocabulary=fox, max_length=4), request("a a a a fox"))
    assert len(cut["input_ids"][0]) == 4


def test_bad_utf_8_fails_alone(tmp_path: Path) -> None:
    found = answers(model(tmp_path), request("a"), request("b", b"\xff\xfe"), request("c"))
    assert found[1] == "text 1 of input 'TEXT' is not valid UTF-8: invalid start byte at byte 0"
    assert [found[0]["input_ids"][0][1], found[2]["input_ids"][0][1]] == [4, 6]


def test_a_text_that_the_library_refuses_fails_alone(tmp_path: Path) -> None:
    made = model(tmp_path)
    tokenizer = made.tokenizer

    class Choosy:
        def encode_batch_fast(self, texts: list[str]) -> Any:
            if "bad" in texts:
                raise ValueError("no way")
            return tokenizer.encode_batch_fast(texts)

    made.tokenizer = Choosy()
    found = answers(made, request("a"), request("b", "bad"))
    assert found[0]["input_ids"] == [[2, 4, 3]]
    assert found[1] == "text 1 of input 'TEXT' cannot be tokenized: no way"


@pytest.mark.parametrize(
    "text", ["", " ", "\0", "a\0b", "😀👍🏽", "e\u0301", "\ufeff", "a" * 100_000, "a " * 50_000]
)
def test_odd_texts_are_texts(text: str, tmp_path: Path) -> None:
    odd, plain = answers(model(tmp_path, max_length=24), request(text), request("a"))
    assert odd["input_ids"][0][0] == 2
    assert 2 <= len(odd["input_ids"][0]) <= 24
    assert plain["input_ids"] == [[2, 4, 3]]


def test_a_text_without_tokens_is_one_masked_token(tmp_path: Path) -> None:
    first, second = answers(model(tmp_path, special=False, pad_id=7), request(""), request("", "a b"))
    assert first == {"input_ids": [[7]], "attention_mask": [[0]], "token_type_ids": [[0]]}
    assert second["attention_mask"] == [[0, 0], [1, 1]]


def test_without_a_batch_axis_a_request_is_one_text(tmp_path: Path) -> None:
    (found,) = answers(model(tmp_path, batched=False), request("a b", rows=False))
    assert found["input_ids"] == [[2, 4, 5, 3]]


def test_a_request_without_rows(tmp_path: Path) -> None:
    (found,) = answers(model(tmp_path), request())
    assert found["input_ids"] == []


def test_every_request_gets_one_response(tmp_path: Path) -> None:
    requests = [request("a"), request(b"\xff"), request("b", "c")] * 5
    assert len(model(tmp_path).execute(requests)) == 15


def test_answers_with_a_cache_are_those_without(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    requests = [request("hello", "the fox a"), request("a"), request(b"\xff"), request("hello")]
    plain = answers(model(tmp_path / "plain"), *requests)
    shutil.copyfile(resources.runtime("token_cache.py"), tmp_path / "token_cache.py")
    made = model(tmp_path, cache=2)
    assert [answers(made, *requests) for _ in range(3)] == [plain] * 3


def counts(made: Any) -> dict[str, float]:
    """The metrics page without zeros and phases."""
    made.finalize()
    page = pb_utils.MetricFamily.page(model="bert_tokenizer", version="1")
    return {series: number for series, number in page.items() if number and "phase" not in series}


def test_texts_tokens_and_rows_are_counted(tmp_path: Path) -> None:
    made = model(tmp_path, max_length=5, unknown_id=tiny.WORDS.index("[UNK]"), pad_id=9)
    answers(made, request("a", "the 🗼 fox"), request("a b c d"), request(b"\xff"))
    answers(made, request("a b c", ""), request("hello the 天 fox a"))
    numbers = counts(made)
    rows = {f'trb_batch_rows_bucket{{le="{le}"}}': 2 for le in (4, 8, 16, 32, 64, 128, 256, "+Inf")}
    wide = {f'trb_text_tokens_bucket{{le="{4 << power}"}}': 6 for power in range(1, 12)}
    assert numbers == {
        "trb_texts_total": 6,
        "trb_tokens_total": 3 + 5 + 5 + 5 + 2 + 5,
        "trb_unknown_tokens_total": 2,
        "trb_truncated_texts_total": 2,
        'trb_refused_texts_total{reason="not_utf8"}': 1,
        "trb_text_tokens_count": 6,
        "trb_text_tokens_sum": 25,
        'trb_text_tokens_bucket{le="4"}': 2,
        'trb_text_tokens_bucket{le="+Inf"}': 6,
        **wide,
        **rows,
        "trb_batch_rows_count": 2,
        "trb_batch_rows_sum": 6,
    }
    page = pb_utils.MetricFamily.page(model="bert_tokenizer", version="1")
    for phase in ("tokenize", "write"):
        assert page[f'trb_phase_seconds_count{{phase="{phase}"}}'] == 2


@pytest.mark.parametrize(
    ("text", "reason", "parameters"),
    [
        ("a" * 65, "too_long", {"max_text_bytes": 64}),
        ("a a a a", "too_long", {"most_tokens": 5}),
        ("", "empty", {"no_empty": "true"}),
        ("the fox", "vocabulary", {"vocabulary": tiny.WORDS.index("fox")}),
        ("a", "mask_missing", {"required_id": 63, "required_token": "[MASK]"}),
    ],
)
def test_refused_texts_are_counted_by_reason(
    text: str, reason: str, parameters: dict[str, Any], tmp_path: Path
) -> None:
    made = model(tmp_path, **parameters)
    (message,) = answers(made, request(text))
    assert isinstance(message, str)
    assert counts(made) == {f'trb_refused_texts_total{{reason="{reason}"}}': 1}


def test_texts_of_a_cache_are_counted(tmp_path: Path) -> None:
    shutil.copyfile(resources.runtime("token_cache.py"), tmp_path / "token_cache.py")
    made = model(tmp_path, cache=8)
    for _ in range(3):
        answers(made, request("a", "b"))
    numbers = counts(made)
    assert (numbers["trb_token_cache_hits_total"], numbers["trb_token_cache_misses_total"]) == (4, 2)
    assert numbers["trb_texts_total"] == 6


# Standard library of Python 3.10, and what the stock image or vendor/ brings.
ALLOWED = {"numpy", "tokenizers", "triton_python_backend_utils"}


def test_imports_are_those_of_the_server() -> None:
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 10))
    names = set()
    for item in ast.walk(tree):
        if isinstance(item, ast.Import):
            names |= {alias.name.split(".")[0] for alias in item.names}
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0
            names.add(str(item.module).split(".")[0])
    assert names - ALLOWED <= sys.stdlib_module_names
    assert "numpy" in names
