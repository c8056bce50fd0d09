"""A slow tokenizer's files (vocab.txt, vocab.json + merges.txt, a SentencePiece model) → tokenizer.json.

transformers converts them, as it does when it loads such a folder. This happens at build time, so the server
needs only ``tokenizers``.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import string
from pathlib import Path
from typing import Any

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import first_line
from triton_repo_builder.model.read import transformers_library

VOCABULARIES = (
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
    "tokenizer.model",
)
"""The files that a slow tokenizer can be converted from."""
COMPANIONS = ("merges.txt", "added_tokens.json", "special_tokens_map.json", "tokenizer_config.json")


SPARSE, MISSING = 2, 100_000
"""Ids that a vocabulary may leave out: as many as it has tokens, and so many more."""
WITHOUT = "serve the model with --task tensor, and tokenize at the client"
"""The remedy for a tokenizer that only its Python class can run."""
NO_FAST_FORM = {
    f"{name}Tokenizer"
    for name in (
        *("Bartpho", "BertJapanese", "Bertweet", "BioGpt", "ByT5", "CTRL", "Canine", "Cpm", "CpmAnt", "Esm"),
        *("FSMT", "Flaubert", "GPTNeoXJapanese", "M2M100", "MarianMT", "Marian", "MyT5"),
        *("PLBart", "Perceiver", "Phobert", "ProphetNet", "RoCBert", "Speech2Text", "Tapas", "TransfoXL"),
        *("Wav2Vec2CTC", "XLM", "XLMProphetNet"),
    )
}
"""Classes of transformers that are Python only, in 4 and in 5."""


def no_fast_form(folder: Path) -> str:
    """The class that tokenizer_config.json names, if no tokenizer.json can be written for it; else empty."""
    try:
        file = containment.within(folder, "tokenizer_config.json")
        named = files.load_json(files.read(file)).get("tokenizer_class") if file else ""
    except (OSError, AttributeError, *files.DAMAGED):
        return ""
    return named if isinstance(named, str) and named in NO_FAST_FORM else ""


def sources(vocabulary: Path) -> tuple[Path, ...]:
    """Every file that the conversion may read."""
    others = (containment.within(vocabulary.parent, name) for name in COMPANIONS)
    return (vocabulary, *(file for file in others if file))


def convert(vocabulary: Path) -> str:
    """The text of tokenizer.json. Raises ``TrbError`` SLOW_TOKENIZER if it has no fast form."""
    if vocabulary.suffix == ".model" and (problem := _sentencepiece()):
        raise _error(
            vocabulary,
            f"converting it needs the package sentencepiece ({problem})",
            "pip install 'triton_repo_builder[sentencepiece]', or save the tokenizer with use_fast=True "
            "where it was made",
        )
    if name := no_fast_form(vocabulary.parent):
        raise _error(vocabulary, f"{name} has no fast form", WITHOUT)
    if vocabulary.suffix == ".json":
        _check_ids(vocabulary)
    converted = _load(vocabulary)
    if type(converted).__name__ == "SiglipTokenizer":
        return json.dumps(_siglip(converted, vocabulary), indent=2, ensure_ascii=False)
    backend = getattr(converted, "backend_tokenizer", None)
    if backend is None or not converted.is_fast:
        raise _error(
            vocabulary,
            f"{type(converted).__name__} has no fast form",
            WITHOUT,
        )
    _check_read(vocabulary, converted)
    document = json.loads(backend.to_str())
    if vocabulary.suffix != ".txt" and not transformers_library.version().startswith("4."):
        document |= _as_trained(converted, vocabulary)
    return json.dumps(document, indent=2, ensure_ascii=False)


def _check_ids(vocabulary: Path) -> None:
    """``TrbError`` if an id is far beyond the others: the library counts through all that are missing."""
    try:
        ids = files.load_json(files.read(vocabulary)).values()
        largest = max((number for number in ids if isinstance(number, int)), default=0)
    except (OSError, AttributeError, *files.DAMAGED):
        return  # the library says what is wrong
    if largest > SPARSE * len(ids) + MISSING:
        raise _error(
            vocabulary,
            f"it gives a token the id {largest:,}, and has {len(ids):,} tokens",
            "get the original file again from the model's source",
        )


def _check_read(vocabulary: Path, converted: Any) -> None:
    """``TrbError`` if the class read none of these files: transformers 5 makes one that knows no word."""
    vocabulary_ids = converted.get_vocab()
    for name in VOCABULARIES:
        tokens = _tokens(vocabulary.with_name(name))
        if tokens and 2 * sum(token in vocabulary_ids for token in tokens) >= len(tokens):
            return
    readable = ", ".join(getattr(converted, "vocab_files_names", {}).values())
    raise _error(
        vocabulary,
        f"{type(converted).__name__} does not read it, and knows {len(vocabulary_ids)} tokens without it"
        + (f" (it reads {readable})" if readable else ""),
        "get the tokenizer's files again from the model's source, or correct tokenizer_class in "
        "tokenizer_config.json",
    )


def _tokens(vocabulary: Path) -> list[str]:
    """The tokens that a vocabulary's file lists; empty if it is not there or not readable."""
    try:
        raw = files.read(vocabulary)
        if vocabulary.suffix == ".txt":
            return raw.decode("utf-8").splitlines()
        if vocabulary.suffix == ".json":
            return list(map(str, files.load_json(raw)))
        model = importlib.import_module("sentencepiece.sentencepiece_model_pb2").ModelProto()
        model.ParseFromString(raw)
        return [piece.piece for piece in model.pieces]
    except Exception:  # protobuf has its own, and the class itself says what it cannot read
        return []


PARTS = ("normalizer", "pre_tokenizer", "model", "post_processor")


def _as_trained(converted: Any, vocabulary: Path) -> dict[str, Any]:
    """The parts that transformers' own converter makes of the files.

    Classes of transformers 5 make simpler ones: without the character map of SentencePiece (DeBERTa-v2, T5,
    ALBERT), without the space before a text (MBart, XLNet), without the tokens around it (RemBERT, BARThez,
    Blenderbot) or with others around a pair (DeBERTa); those of transformers 4 are made by the converter.
    """
    converters = transformers_library.load("convert_slow_tokenizer")
    converter = converters.SLOW_TO_FAST_CONVERTERS.get(type(converted).__name__.removesuffix("Fast"))
    if converter is None:
        return {}
    try:
        _as_slow(converted, vocabulary)
        trained = json.loads(converter(converted).converted().to_str())
    except Exception as error:
        if vocabulary.suffix == ".json":
            return {}  # its vocabulary and merges are all there is to read, and the class has read them
        raise _unconvertible(vocabulary, error) from None
    return {part: trained[part] for part in PARTS}


def _as_slow(converted: Any, vocabulary: Path) -> None:
    """Set the attributes of a slow tokenizer that a converter reads on one of transformers 5."""
    converted.vocab_file = str(vocabulary)
    if vocabulary.suffix == ".json":
        merges = files.read_text(vocabulary.parent / COMPANIONS[0]).splitlines()
        pairs = [tuple(line.split()) for line in merges if line and not line.startswith("#version")]
        converted.encoder = files.load_json(files.read(vocabulary))
        converted.bpe_ranks = {pair: number for number, pair in enumerate(pairs)}
        return
    # Slow classes that do not know the setting put a space there.
    stated = vocabulary.with_name("tokenizer_config.json")
    settings = files.load_json(files.read(stated)) if stated.is_file() else {}
    converted.add_prefix_space = settings.get("add_prefix_space") is not False


def _siglip(converted: Any, vocabulary: Path) -> dict[str, Any]:
    """SigLIP's: T5's without its extra tokens, after the steps of ``SiglipTokenizer.canonicalize_text``.

    transformers has no converter for it, and its class is Python only.
    """
    converted.vocab_file, converted._extra_ids = str(vocabulary), 0
    try:
        converter = transformers_library.load("convert_slow_tokenizer").T5Converter(converted)
        document: dict[str, Any] = json.loads(converter.converted().to_str())
    except Exception as error:
        raise _unconvertible(vocabulary, error) from None
    punctuation = "[" + "".join(f"\\{sign}" for sign in string.punctuation) + "]"
    steps = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        *([{"type": "Lowercase"}] if converted.do_lower_case else []),
        {"type": "Replace", "pattern": {"Regex": punctuation}, "content": ""},
        {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
        {"type": "Strip", "strip_left": True, "strip_right": True},
    ]
    normalizer = document["normalizer"]
    steps += normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    return {**document, "normalizer": {"type": "Sequence", "normalizers": steps}}


def _sentencepiece() -> str:
    """Why a SentencePiece model cannot be read here; empty if it can."""
    try:
        importlib.import_module("sentencepiece.sentencepiece_model_pb2")
    except Exception as error:  # protobuf raises its own if the versions do not fit
        return first_line(error)
    return ""


def _load(vocabulary: Path) -> Any:
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return transformers_library.from_pretrained("AutoTokenizer", vocabulary.parent, use_fast=True)
    except TrbError:
        raise
    except Exception as error:
        raise _unconvertible(vocabulary, error) from None


def _unconvertible(vocabulary: Path, error: Exception) -> TrbError:
    # The first line may only announce a list of what was tried.
    first = transformers_library.reason(error, vocabulary.parent).removesuffix(" from one of:")
    return _error(
        vocabulary,
        f"transformers cannot convert it: {first}",
        # transformers 5 may write a simpler tokenizer than the model's.
        "put config.json and tokenizer_config.json beside it, or write a tokenizer.json with transformers 4: "
        'python -c "from transformers import AutoTokenizer as A; '
        f"A.from_pretrained('{vocabulary.parent}').save_pretrained('{vocabulary.parent}')\"",
    )


def _error(vocabulary: Path, why: str, remedy: str) -> TrbError:
    return TrbError(
        Code.SLOW_TOKENIZER,
        f"the tokenizer has '{vocabulary.name}' but no tokenizer.json (a slow-only tokenizer): {why}",
        where=str(vocabulary.parent),
        remedy=remedy,
    )
