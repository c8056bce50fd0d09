"""A model of one token type, and a tokenizer that gives the second text of a pair another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny

from triton_repo_builder.errors import Code, TrbError


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
