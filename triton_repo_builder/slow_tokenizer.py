"""A slow tokenizer's files (vocab.txt, vocab.json + merges.txt, a SentencePiece model) → tokenizer.json.

transformers converts them, as it does when it loads such a folder. It is done at build time, so the server
needs ``tokenizers`` alone as ever.
"""

from __future__ import annotations

import contextlib
import io
import os
from importlib import util
from pathlib import Path
from typing import Any

from triton_repo_builder.errors import Exit, TrbError

VOCABULARIES = (
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
"""The files that a slow tokenizer can be converted from."""
COMPANIONS = ("merges.txt", "added_tokens.json", "special_tokens_map.json", "tokenizer_config.json")


def sources(vocabulary: Path) -> tuple[Path, ...]:
    """Every file that the conversion may read."""
    others = (vocabulary.with_name(name) for name in COMPANIONS)
    return (vocabulary, *(file for file in others if file.is_file()))


def convert(vocabulary: Path) -> str:
    """The text of tokenizer.json. Raises ``TrbError`` SLOW_TOKENIZER where there is no fast form of it."""
    if vocabulary.suffix == ".model" and util.find_spec("sentencepiece") is None:
        raise _error(
            vocabulary,
            "converting it needs the package sentencepiece",
            "pip install 'triton_repo_builder[sentencepiece]', or save the tokenizer with use_fast=True "
            "where it was made",
        )
    made = _load(vocabulary)
    backend = getattr(made, "backend_tokenizer", None)
    if backend is None or not made.is_fast:
        raise _error(
            vocabulary,
            f"{type(made).__name__} has no fast form",
            "serve the model with --task tensor, and tokenize at the client",
        )
    return str(backend.to_str(pretty=True))


def _load(vocabulary: Path) -> Any:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import AutoTokenizer

    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return AutoTokenizer.from_pretrained(str(vocabulary.parent), use_fast=True, local_files_only=True)
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise _error(
            vocabulary,
            f"transformers cannot convert it: {first[:300]}",
            "put config.json and tokenizer_config.json beside it, or write a tokenizer.json with: "
            'python -c "from transformers import AutoTokenizer as A; '
            f"A.from_pretrained('{vocabulary.parent}').save_pretrained('{vocabulary.parent}')\"",
        ) from None


def _error(vocabulary: Path, why: str, remedy: str) -> TrbError:
    return TrbError(
        Exit.SLOW_TOKENIZER,
        f"the tokenizer has '{vocabulary.name}' but no tokenizer.json (a slow-only tokenizer): {why}",
        where=str(vocabulary.parent),
        remedy=remedy,
    )
