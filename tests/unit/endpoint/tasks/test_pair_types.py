"""Models that do not get the token type that a tokenizer gives the second text of a pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny

from triton_repo_builder.base.errors import Code, TrbError


def one_type(folder: Path, **config: object) -> Path:
    tiny.classifier(folder, labels=int(str(config.pop("labels", 3))))
    document = json.loads((folder / "config.json").read_text())
    tiny.put_json(folder / "config.json", {**document, "type_vocab_size": 1, **config})
    return folder


def test_a_classifier_takes_single_texts(tmp_path: Path, output: Path) -> None:
    """It was refused for the pairs among the golden cases, where transformers classifies texts alone."""
    made = tiny.make(one_type(tmp_path / "c"), output, golden=True)
    assert "TEXT_PAIR" not in tiny.config(made, "c")
    assert [note for note in made.notes if note.startswith("TEXT alone")]


def test_two_types_are_enough(tmp_path: Path, output: Path) -> None:
    made = tiny.make(one_type(tmp_path / "c", type_vocab_size=2), output, golden=True)
    assert "TEXT_PAIR" in tiny.config(made, "c")


def test_a_task_of_pairs_is_refused(tmp_path: Path, output: Path) -> None:
    folder = one_type(tmp_path / "r", labels=1)
    with pytest.raises(TrbError) as caught:
        tiny.make(folder, output, golden=True, task="rerank")
    assert caught.value.code == Code.TOKENIZER_MISMATCH


def test_a_tokenizer_whose_types_the_model_did_not_get(tmp_path: Path, output: Path) -> None:
    folder = one_type(tmp_path / "c")
    tiny.put_json(folder / "tokenizer_config.json", {"model_input_names": ["input_ids", "attention_mask"]})
    assert "TEXT_PAIR" in tiny.config(tiny.make(folder, output, golden=True), "c")


def without_types(folder: Path, **options: Any) -> Path:
    """A model of two types whose graph has no input for them, as torch exports it from ids and mask alone."""
    tiny.classifier(folder, types=False, **options)
    document = json.loads((folder / "config.json").read_text())
    tiny.put_json(folder / "config.json", {**document, "type_vocab_size": 2})
    return folder


def test_a_graph_without_types_takes_single_texts(tmp_path: Path, output: Path) -> None:
    """Its pairs were answered, and not as the model answers them."""
    made = tiny.make(without_types(tmp_path / "c"), output, golden=True)
    assert "TEXT_PAIR" not in tiny.config(made, "c")
    assert [note for note in made.notes if "the graph has no input token_type_ids" in note]


def test_a_graph_without_types_is_refused_for_pairs(tmp_path: Path, output: Path) -> None:
    folder = without_types(tmp_path / "r", labels=1)
    with pytest.raises(TrbError, match="no input token_type_ids, though the model has 2") as caught:
        tiny.make(folder, output, golden=True, task="rerank")
    assert caught.value.code == Code.TOKENIZER_MISMATCH
    tiny.put_json(folder / "tokenizer_config.json", {"model_input_names": ["input_ids", "attention_mask"]})
    assert "DOCUMENT" in tiny.config(tiny.make(folder, output, golden=True, task="rerank"), "r")


def test_a_class_that_gives_no_types_needs_none(tmp_path: Path, output: Path) -> None:
    folder = without_types(tmp_path / "b")
    tiny.put_json(folder / "tokenizer_config.json", {"tokenizer_class": "BigBirdTokenizer"})
    assert "TEXT_PAIR" in tiny.config(tiny.make(folder, output), "b")
