from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from triton_repo_builder.model.read import tokenizer_config

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


@pytest.mark.parametrize(
    ("named", "settings", "space", "trim"),
    [
        ("RobertaTokenizerFast", {"add_prefix_space": True}, True, True),
        ("RobertaTokenizer", {"trim_offsets": False}, False, False),
        ("BartTokenizer", {}, False, True),
        ("PreTrainedTokenizerFast", {"trim_offsets": False}, True, True),
        ("GPT2Tokenizer", {"trim_offsets": False}, True, True),
    ],
)
def test_places_of_tokens(named: str, settings: dict[str, Any], space: bool, trim: bool) -> None:
    """The first word of a text begins at 0 also where a space was put before it."""
    ends = {"sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": True}
    document = {"normalizer": None, "post_processor": {"type": "RobertaProcessing", **ends}}
    made = tokenizer_config.applied(document, {"tokenizer_class": named, **settings}) or document
    assert made["post_processor"]["add_prefix_space"] is space
    assert made["post_processor"]["trim_offsets"] is trim


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


def own_and_served(
    folder: Path, made: Tokenizer, settings: dict[str, Any], text: str
) -> tuple[list[str], list[str]]:
    """The tokens that AutoTokenizer gives, and those of the tokenizer.json that is served."""
    folder.mkdir()
    (folder / "tokenizer.json").write_text(made.to_str())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    own = transformers.AutoTokenizer.from_pretrained(folder)
    document = json.loads(made.to_str())
    served = tokenizer_config.applied(document, settings) or document
    tokens: list[str] = own.convert_ids_to_tokens(own(text)["input_ids"])
    library = Tokenizer.from_str(json.dumps(served))
    return tokens, [library.id_to_token(number) for number in library.encode(text).ids]


@pytest.mark.parametrize("language", [None, "de_DE", "fr_XX"])
@pytest.mark.parametrize("kind", ["MBartTokenizer", "MBart50Tokenizer", "NllbTokenizer"])
def test_the_language_of_a_text(kind: str, language: str | None, tmp_path: Path) -> None:
    words = ["<s>", "<pad>", "</s>", "<unk>", "▁hello", "▁the", "▁"]
    made = Tokenizer(models.Unigram([(word, -float(n)) for n, word in enumerate(words)], unk_id=3))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    usual = "eng_Latn" if kind == "NllbTokenizer" else "en_XX"
    made.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", usual, "de_DE", "fr_XX"])
    settings = {"tokenizer_class": kind, **({"src_lang": language} if language else {})}
    own, served = own_and_served(tmp_path / "m", made, settings, "hello the")
    assert (language or usual) in own
    # Two of the classes of transformers 5 make a vocabulary of their own: the ends are compared.
    assert [served[0], served[-1]] == [own[0], own[-1]] if kind != "MBartTokenizer" else served == own


def decoder(number: int, text: str, **flags: bool) -> dict[str, Any]:
    usual = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    return {"added_tokens_decoder": {str(number): {"content": text, **usual, **flags}}}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mask_token": "[X]"},
        {"mask_token": {"content": "[X]", "__type": "AddedToken", "lstrip": True, "rstrip": True}},
        {"additional_special_tokens": ["[X]"]},
        {"extra_special_tokens": {"image": "[X]"}},
        decoder(3, "[X]", lstrip=True, rstrip=True),
        decoder(2, "the", single_word=True, special=False),
        decoder(4, "[Y]", lstrip=True),
    ],
)
def test_what_is_a_token_by_itself(settings: dict[str, Any], tmp_path: Path) -> None:
    vocabulary = {"[UNK]": 0, "hello": 1, "the": 2, "[X]": 3, "[Y]": 4, "x": 5}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_tokens([AddedToken("the")])
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **settings}
    own, served = own_and_served(tmp_path / "m", made, settings, "hello  [X] then x[X] the[Y] [Y]hello")
    assert served == own


def test_a_padding_token_without_a_row_stays_out() -> None:
    made = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}
    assert tokenizer_config.applied(json.loads(made.to_str()), settings) is None


@pytest.mark.parametrize("model", ["ernie", "megatron-bert", "nezha", "roformer", "visual_bert", "bert"])
def test_the_class_of_a_bert_that_no_file_names(model: str) -> None:
    changed = tokenizer_config.applied({"normalizer": LOWER}, {"do_lower_case": False}, {"model_type": model})
    assert changed is not None
    assert changed["normalizer"]["lowercase"] is False


@pytest.mark.parametrize("model", ["mistral", "phi3", "gemma3_text", "llama"])
def test_the_class_of_a_decoder_that_no_file_names(model: str) -> None:
    first, last = ("<bos>", "<eos>") if "gemma" in model else ("<s>", "</s>")
    added = [{"content": first, "id": 1}, {"content": last, "id": 2}]
    changed = tokenizer_config.applied(
        {"added_tokens": added}, {"bos_token": first, "eos_token": last}, {"model_type": model}
    )
    assert changed is not None
    assert "SpecialToken" in changed["post_processor"]["single"][0]
