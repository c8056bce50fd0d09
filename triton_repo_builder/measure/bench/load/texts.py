"""Texts to send: a corpus as it is, one fixed text, or texts of an exact number of tokens."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder.base import user_file
from triton_repo_builder.model.read import tokenizer
from triton_repo_builder.repository import Repository

SHIPPED = Path(__file__).with_name("corpus.txt")
FITTED = 32
"""Different texts of each length."""
SHORT_WORDS = ("the", "and", "a", "of", "to", "in", "x", ".", "is", "not", "good")

Count = Callable[[str], int]


@dataclass(frozen=True, kw_only=True)
class LengthMeasure:
    """How a text's length is counted."""

    count: Count
    unit: str
    """``tokens`` or ``words``."""
    source: str
    """The tokenizer.json used; empty for words."""


def corpus(path: Path | None) -> tuple[str, ...]:
    """A text per line, empty lines left out; None for the corpus that is shipped."""
    return user_file.lines(path or SHIPPED)


def measure(repository: Repository | None, models: Sequence[str]) -> LengthMeasure:
    """The tokenizer of one of these models, special tokens included; else words."""
    for file in _tokenizers(repository, models):
        try:
            library = tokenizer.load(file.read_text(encoding="utf-8"))
        except Exception:  # the library raises a bare Exception
            continue
        return LengthMeasure(count=_counter(library), unit="tokens", source=str(file))
    return LengthMeasure(count=lambda text: len(text.split()), unit="words", source="")


def _counter(library: Any) -> Count:
    return lambda text: len(library.encode(text).ids)


def _tokenizers(repository: Repository | None, models: Sequence[str]) -> list[Path]:
    candidates = []
    for name in models:
        model = repository.model(name) if repository else None
        for version in reversed(model.versions if model else ()):
            assert model is not None
            candidates += sorted((model.path / str(version)).glob("**/tokenizer.json"))
    return candidates


def fit(texts: Sequence[str], length: int, count: Count, seed: int = 1) -> tuple[str, ...]:
    """Different texts of ``length``, from the words of the corpus; the nearest length if none fits."""
    chance = random.Random(seed * 1_000_003 + length)
    words = " ".join(texts).split()
    return tuple(_fit_one(words, length, count, chance.randrange(len(words))) for _ in range(FITTED))


def _fit_one(words: Sequence[str], length: int, count: Count, start: int) -> str:
    """The longest run of words that fits, then short words until it is full."""

    def text(number: int) -> str:
        return " ".join(words[(start + i) % len(words)] for i in range(number))

    # A word rarely is less than one token.
    low, high = 0, length + 1
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(text(middle)) <= length else (low, middle)
    best = text(low)
    while (missing := length - count(best)) > 0:
        longer = [f"{best} {word}".strip() for word in SHORT_WORDS]
        fitting = [run for run in longer if 0 <= length - count(run) < missing]
        if not fitting:
            break
        best = min(fitting, key=lambda run: (length - count(run) != missing - 1, fitting.index(run)))
    return best


def describe(texts: Sequence[str], source: str, measured: LengthMeasure) -> dict[str, Any]:
    """Statistics of the texts, for the report."""
    lengths = sorted(measured.count(text) for text in texts)
    return {
        "source": source,
        "texts": len(texts),
        "unit": measured.unit,
        "shortest": lengths[0],
        "median": lengths[len(lengths) // 2],
        "longest": lengths[-1],
    }
