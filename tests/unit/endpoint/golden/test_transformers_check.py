from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny
from tokenizers import Tokenizer, normalizers

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.golden import transformers_check
from triton_repo_builder.model.read import tokenizer

TEXTS = (("plain", "hello the fox"), ("upper", "HELLO"))


def test_one_that_follows_is_not_worth_a_word(tmp_path: Path) -> None:
    spec = tokenizer.read(tiny.describe(tmp_path) / "tokenizer.json")
    assert transformers_check.note(spec, TEXTS) == ""


def test_one_that_does_not_follow_is_named(tmp_path: Path) -> None:
    """The file says more than the settings of its class can: the class makes another one of it."""
    folder = tiny.describe(tmp_path)
    tiny.put_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})
    file = folder / "tokenizer.json"
    made = Tokenizer.from_file(str(file))
    made.normalizer = normalizers.Sequence([normalizers.BertNormalizer(), normalizers.Replace("fox", "the")])
    document = json.loads(made.to_str())
    file.write_text(json.dumps(document))
    note = transformers_check.note(tokenizer.read(file), TEXTS)
    assert note.startswith("BertTokenizer of transformers ")
    assert "golden texts plain)" in note


def test_one_that_cannot_be_loaded(tmp_path: Path) -> None:
    folder = tiny.describe(tmp_path)
    tiny.put_json(folder / "tokenizer_config.json", {"tokenizer_class": 3})
    with pytest.raises(TrbError) as caught:
        transformers_check.note(tokenizer.read(folder / "tokenizer.json"), TEXTS)
    assert caught.value.code == Code.TOKENIZER_INVALID
    assert caught.value.message.startswith("transformers cannot load it: ")


@pytest.mark.parametrize("name", ["other.json", "tokenizer.json"])
def test_a_file_that_says_nothing_of_a_class(name: str, tmp_path: Path) -> None:
    spec = tokenizer.read(tiny.tokenizer(tmp_path / name))
    assert transformers_check.note(spec, TEXTS) == ""
