"""Tokens of texts that are much longer than a model reads: as many as matter, in bounded memory."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny

from tests.unit.run.gateway.test_app import SERVED, gateway
from triton_repo_builder.run.gateway import text_rules
from triton_repo_builder.run.gateway.call import Call
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.run.gateway.text_rules import LONG, LONGEST, TextRules, characters, parts


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


def test_short_texts_and_pairs_are_counted_exactly(file: Path) -> None:
    rules = TextRules(file=file, max_length=8)
    assert rules.lengths(["hello", "hello the fox"]) == [3, 5]
    assert rules.lengths([("hello", "the fox")]) == [6]


def test_a_long_text_counts_by_its_beginning(file: Path) -> None:
    rules = TextRules(file=file, max_length=8)
    seen: list[int] = []
    whole = type(rules.tokenizer).encode_batch_fast

    class Counting:
        def encode_batch_fast(self, texts: list[Any]) -> Any:
            seen.extend(map(characters, texts))
            return whole(tokenizer, texts)

    tokenizer = rules.tokenizer
    rules.__dict__["tokenizer"] = Counting()
    text = "hello " * LONGEST
    counts = rules.lengths([text, "hello", (text, text)])
    assert rules.used(counts) == 8 + 3 + 8
    assert max(seen) <= 2 * LONG


def test_a_long_text_of_few_tokens_is_counted_to_its_end(file: Path) -> None:
    rules = TextRules(file=file, max_length=8)
    text = " " * (LONG + 1) + "hello the fox"
    assert rules.lengths([text]) == [5]
    assert TextRules(file=file).lengths(["hello " * LONG]) == [LONG + 2]


def test_a_text_that_is_too_long_to_be_counted_is_refused(file: Path) -> None:
    with pytest.raises(Refusal) as refused:
        TextRules(file=file).lengths(["hello " * LONGEST])
    assert refused.value.status == 413


def test_token_ids_are_limited(file: Path) -> None:
    with pytest.raises(Refusal) as refused:
        TextRules(file=file).texts_of_ids([[5] * 1000] * 301, "input")
    assert refused.value.status == 413


def test_parts_are_all_of_the_texts_in_order() -> None:
    texts = [str(number) * 1000 for number in range(1000)]
    listed = list(parts(texts))
    assert len(listed) > 3
    assert [text for part in listed for text in part] == texts
    assert max(sum(map(len, part)) for part in listed) <= 5 * LONG
    assert list(parts([])) == []
    assert list(parts(["a", ("b", "c")])) == [["a", ("b", "c")]]


def test_a_failed_request_does_not_wait_for_the_count(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = gateway()
    release = threading.Event()
    served = replace(SERVED, rules=TextRules(file=file, max_length=8))
    monkeypatch.setattr(
        text_rules.TextRules, "lengths", lambda self, texts: [1 for _ in texts if release.wait(10)]
    )

    async def fail() -> None:
        raise Refusal(400, "too long")

    async def run() -> None:
        gate.triton.before = fail  # type: ignore[attr-defined]
        call = Call(gateway=gate, path="/", body=b"", headers={}, id="1")
        texts = ["hello"] * 300
        with pytest.raises(Refusal):
            await call.counted(served, {"TEXT": [b"hello"] * 300}, ("embedding",), texts)
        assert not release.is_set()
        release.set()

    asyncio.run(run())
    assert gate.admission.rows == 0
