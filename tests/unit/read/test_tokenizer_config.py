from __future__ import annotations

from typing import Any

import pytest

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
