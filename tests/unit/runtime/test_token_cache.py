"""The tokenizer model's memory of texts: the same encodings, and fewer texts to tokenize."""

from __future__ import annotations

from importlib import util
from typing import Any

import pytest

from triton_repo_builder.base import resources

FILE = resources.runtime("token_cache.py")
spec = util.spec_from_file_location("trb_token_cache", FILE)
assert spec is not None
assert spec.loader is not None
token_cache: Any = util.module_from_spec(spec)
spec.loader.exec_module(token_cache)


class Tokenizer:
    """Notes what it was asked for."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, texts: list[Any]) -> list[Any]:
        self.seen += texts
        return [ValueError("bad") if text == "bad" else ("encoded", text) for text in texts]


def cache(most: int = 8) -> tuple[Any, Tokenizer]:
    tokenizer = Tokenizer()
    return token_cache.TokenCache(tokenizer, most, lambda hits: None, lambda misses: None), tokenizer


def test_a_text_is_tokenized_once() -> None:
    tokenizer, hits, misses = Tokenizer(), list[int](), list[int]()
    made = token_cache.TokenCache(tokenizer, 8, hits.append, misses.append)
    assert made(["a", "b", "a"]) == [("encoded", "a"), ("encoded", "b"), ("encoded", "a")]
    assert made(["b", ("a", "b")]) == [("encoded", "b"), ("encoded", ("a", "b"))]
    assert tokenizer.seen == ["a", "b", ("a", "b")]
    assert (sum(hits), sum(misses)) == (2, 3)


def test_what_was_not_used_for_longest_is_forgotten() -> None:
    made, tokenizer = cache(2)
    for text in ("a", "b", "a", "c", "a", "b"):
        made([text])
    assert tokenizer.seen == ["a", "b", "c", "b"]


def test_a_batch_of_more_texts_than_are_kept() -> None:
    made, _ = cache(2)
    texts = ["a", "b", "c", "d", "a"]
    for _ in range(3):
        assert made(texts) == [("encoded", text) for text in texts]
    assert made([]) == []


@pytest.mark.parametrize("text", ["bad", "x" * (token_cache.LONGEST + 1), ("q", "x" * token_cache.LONGEST)])
def test_errors_and_long_texts_are_not_kept(text: Any) -> None:
    made, tokenizer = cache()
    made([text])
    made([text])
    assert tokenizer.seen == [text, text]


def test_imports_are_those_of_the_server() -> None:
    lines = FILE.read_text().splitlines()
    names = {line.split()[1].split(".")[0] for line in lines if line.startswith(("import ", "from "))}
    assert names == {"collections", "typing"}
