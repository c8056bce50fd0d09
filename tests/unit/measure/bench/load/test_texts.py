"""The corpus, and texts of exact lengths."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.load import texts
from triton_repo_builder.repository import Model, Repository
from triton_repo_builder.repository.config import ModelConfig


def test_the_shipped_corpus_is_a_realistic_mix() -> None:
    found = texts.corpus(None)
    lengths = sorted(len(text.split()) for text in found)
    assert len(found) == len(set(found)) >= 300
    assert 15 <= lengths[len(lengths) // 2] <= 20
    assert lengths[-1] <= 120
    assert lengths[int(0.95 * len(lengths))] > 3 * lengths[len(lengths) // 2], "a long tail"
    assert sum(not text.isascii() for text in found) > 10


def test_a_corpus_is_a_text_per_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("one\n\n  two words \n")
    assert texts.corpus(file) == ("one", "two words")
    file.write_text("\n")
    with pytest.raises(TrbError, match="holds no text") as raised:
        texts.corpus(file)
    assert raised.value.code == Code.USAGE
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(TrbError, match="not UTF-8"):
        texts.corpus(file)
    with pytest.raises(TrbError, match="cannot be read"):
        texts.corpus(tmp_path / "absent.txt")


def local(tmp_path: Path) -> Repository:
    folder = tmp_path / "t"
    tiny.tokenizer(folder / "1" / "tokenizer.json")
    model = Model(name="t", path=folder, config=ModelConfig(), text="", error=None, versions=(1,))
    return Repository(path=tmp_path, models=(model,), manifest=None)


@pytest.mark.parametrize("length", [3, 4, 32, 64, 128, 256, 700])
def test_texts_have_exactly_as_many_tokens(tmp_path: Path, length: int) -> None:
    measured = texts.measure(local(tmp_path), ["absent", "t"])
    assert measured.unit == "tokens"
    fitted = texts.fit(texts.corpus(None), length, measured.count)
    assert {measured.count(text) for text in fitted} == {length}, "though the file says to cut at 12"
    assert len(set(fitted)) > 3 or length == 3
    assert fitted == texts.fit(texts.corpus(None), length, measured.count)


def test_words_are_counted_where_there_is_no_tokenizer(tmp_path: Path) -> None:
    for repository in (None, Repository(path=tmp_path, models=(), manifest=None)):
        measured = texts.measure(repository, ["t"])
        assert (measured.unit, measured.source) == ("words", "")
    fitted = texts.fit(texts.corpus(None), 300, measured.count)
    assert {len(text.split()) for text in fitted} == {300}
