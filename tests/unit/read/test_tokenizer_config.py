from __future__ import annotations

import json
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from triton_repo_builder.read import tokenizer_config

LOWER = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}
BERT = {"tokenizer_class": "BertTokenizer"}


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({}, None),
        ({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False}, None),
        (BERT, None),
        ({**BERT, "do_lower_case": True}, None),
        ({**BERT, "do_lower_case": False}, {"lowercase": False}),
        ({"tokenizer_class": "DistilBertTokenizerFast", "do_lower_case": False}, {"lowercase": False}),
        ({**BERT, "strip_accents": False}, {"strip_accents": False}),
        ({**BERT, "tokenize_chinese_chars": False}, {"handle_chinese_chars": False}),
        ({"tokenizer_class": "MPNetTokenizer", "tokenize_chinese_chars": False}, None),
    ],
)
def test_normalizer(settings: dict[str, Any], changed: dict[str, Any] | None) -> None:
    document = {"normalizer": LOWER, "pre_tokenizer": {"type": "BertPreTokenizer"}}
    expected = None if changed is None else {**document, "normalizer": {**LOWER, **changed}}
    assert tokenizer_config.applied(document, settings) == expected
    assert document["normalizer"] == LOWER


@pytest.mark.parametrize(
    ("settings", "space"), [({}, None), ({"x": 1}, None), ({"add_prefix_space": True}, True)]
)
def test_prefix_space(settings: dict[str, Any], space: bool | None) -> None:
    splitter = {"type": "ByteLevel", "add_prefix_space": False}
    document = {"normalizer": None, "pre_tokenizer": splitter}
    expected = {**document, "pre_tokenizer": {**splitter, "add_prefix_space": space}}
    assert tokenizer_config.applied(document, settings) == (None if space is None else expected)


LLAMA = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": {"content": "</s>"}}
ADDED = [{"content": "<s>", "id": 1}, {"content": "</s>", "id": 2}]


def tokens(**changes: Any) -> list[list[int]] | None:
    """What a text and a pair become, of a Llama tokenizer with these settings; None: as it was."""
    version = changes.pop("version", "4.40.1")
    made = Tokenizer(models.WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2, "a": 3, "b": 4}, unk_token="<unk>"))
    made.add_special_tokens(["<s>", "</s>"])
    document = json.loads(made.to_str())
    changed = tokenizer_config.applied(document, {**LLAMA, **changes}, {"transformers_version": version})
    if changed is None:
        return None
    made = Tokenizer.from_str(json.dumps(changed))
    return [made.encode("a").ids, made.encode("a", "b").ids]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [[1, 3], [1, 3, 1, 4]]),
        ({"add_eos_token": True}, [[1, 3, 2], [1, 3, 2, 1, 4, 2]]),
        ({"add_bos_token": False, "add_eos_token": True}, [[3, 2], [3, 2, 4, 2]]),
        ({"add_eos_token": True, "version": ""}, [[1, 3, 2], [1, 3, 2, 1, 4, 2]]),
        ({"add_eos_token": True, "version": "5.1.0"}, None),
        ({"add_eos_token": True, "tokenizer_class": "PreTrainedTokenizerFast"}, None),
        ({"add_eos_token": True, "tokenizer_class": "LlamaTokenizerFast"}, [[1, 3, 2], [1, 3, 2, 1, 4, 2]]),
    ],
)
def test_first_and_last_tokens_as_transformers_4_put_them(
    changes: dict[str, Any], expected: list[list[int]] | None
) -> None:
    assert tokens(**changes) == expected


@pytest.mark.parametrize("stated", [{"model_type": "bert"}, {"tokenizer_class": "BertTokenizer"}])
def test_a_class_that_only_config_json_names(stated: dict[str, Any]) -> None:
    changed = tokenizer_config.applied({"normalizer": LOWER}, {"do_lower_case": False}, stated)
    assert changed == {"normalizer": {**LOWER, "lowercase": False}}
    assert tokenizer_config.applied({"normalizer": LOWER}, {"do_lower_case": False}, {}) is None


def test_an_older_metaspace_keeps_its_prefix() -> None:
    splitter = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
    document = {"pre_tokenizer": splitter}
    assert tokenizer_config.applied(document, {"tokenizer_class": "DebertaV2Tokenizer"}) is None


def test_a_template_that_is_right_stays() -> None:
    once = tokenizer_config.applied({"added_tokens": ADDED}, LLAMA)
    assert once is not None
    assert tokenizer_config.applied(once, LLAMA) is None


def test_a_tokenizer_of_little() -> None:
    assert tokenizer_config.applied({"model": {}}, BERT) is None


@pytest.mark.parametrize(
    ("normalizer", "expected"),
    [
        (None, [{"type": "Lowercase"}]),
        ({"type": "NFC"}, [{"type": "Lowercase"}, {"type": "NFC"}]),
        ({**LOWER, "lowercase": False}, [{"type": "Lowercase"}, {**LOWER, "lowercase": False}]),
        ({"type": "Sequence", "normalizers": [{"type": "NFC"}]}, [{"type": "Lowercase"}, {"type": "NFC"}]),
        (LOWER, None),
        ({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}, None),
    ],
)
def test_lower_case_as_sentence_transformers_has_it(normalizer: Any, expected: Any) -> None:
    changed = tokenizer_config.lowered({"normalizer": normalizer, "model": 1})
    steps = {"type": "Sequence", "normalizers": expected}
    assert changed == (None if expected is None else {"normalizer": steps, "model": 1})
