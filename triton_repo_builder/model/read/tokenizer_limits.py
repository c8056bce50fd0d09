"""Limits for a tokenizer.json: one that multiplies a text exhausts memory, here and in the server.

Each step of the normalizer is run by itself, on short texts, and only if its result cannot be too long.
"""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from triton_repo_builder.base import deadline
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import transformers_library

Result = TypeVar("Result")
SECONDS = 30.0
"""Time for a call into the library; a short text takes it milliseconds."""

LONGEST = 4096
"""Characters of a text in a tokenizer.json besides its words: a token that stands for unknown words, say."""
MOST_GROWN = 100_000
"""Characters that may become of one of the short texts."""
MOST_WORK = 1 << 26
"""Characters that one step may at worst make while this is found out."""
MOST_SPECIAL = 1024
"""Tokens that a template may add."""
WORDS = ("vocab", "merges", "precompiled_charsmap", "added_tokens")
SAMPLE = f"{string.printable}The quick brown fox ÄÖÜß éàç 日本語 テキスト اللغة भाषा 1234"

Step = Callable[[str], str]


def in_time(call: Callable[[], Result]) -> Result:
    """The result of a call into ``tokenizers``; ``TrbError`` after SECONDS, as a pattern may take for ever.

    A panic is a ``ValueError``. The library cannot be interrupted, so it works in a thread of its own, which
    ends with this process.
    """
    try:
        with transformers_library.panics():
            return deadline.within(SECONDS, call)
    except deadline.Exceeded:
        raise TrbError(
            Code.TOKENIZER_INVALID,
            f"the tokenizer works for more than {SECONDS:g} s on a short text",
            remedy="get its files again from the model's source: a pattern in it does not end",
        ) from None


def check(document: Mapping[str, Any], load: Callable[[str], Any]) -> None:
    """Raise ValueError for a tokenizer.json that multiplies texts, or whose template names missing tokens.

    ``load`` makes a tokenizer of the library.
    """
    for path, text in _texts(document, ()):
        if len(text) > LONGEST:
            raise ValueError(f"its {'.'.join(path)} is a text of {len(text):,} characters")
    for template in _parts(document.get("post_processor"), "processors", "TemplateProcessing"):
        _check_template(template)
    _check_growth(document, load)


def template_ids(document: Mapping[str, Any]) -> Iterator[int]:
    """Ids that the templates of a tokenizer.json add to a text."""
    for template in _parts(document.get("post_processor"), "processors", "TemplateProcessing"):
        for special in template["special_tokens"].values():
            yield from special["ids"]


def _texts(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in WORDS:
                yield from _texts(inner, (*path, key))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, path)


def _parts(part: Any, inner: str, kind: str = "") -> Iterator[Mapping[str, Any]]:
    """The steps of a part, in their order: it may be a sequence of such parts."""
    if not part:
        return
    if part.get("type") == "Sequence":
        for step in part.get(inner) or ():
            yield from _parts(step, inner, kind)
    elif not kind or part.get("type") == kind:
        yield part


def _check_template(template: Mapping[str, Any]) -> None:
    defined = template.get("special_tokens") or {}
    for name, texts in (("single", {"A"}), ("pair", {"A", "B"})):
        added, sequences = 0, []
        for piece in template.get(name) or ():
            (kind, said), *_ = piece.items()
            if kind == "Sequence":
                sequences.append(said["id"])
            elif said["id"] not in defined:
                raise ValueError(f"its template has the token {said['id']!r:.60}, which it does not define")
            else:
                added += len(defined[said["id"]]["ids"])
        if len(set(sequences)) != len(sequences) or not texts.issuperset(sequences):
            raise ValueError(f"its template for a {name} repeats a text, or has one that is not there")
        if added > MOST_SPECIAL:
            raise ValueError(f"its template adds {added:,} tokens to every text")


def _check_growth(document: Mapping[str, Any], load: Callable[[str], Any]) -> None:
    parts = list(_parts(document.get("normalizer"), "normalizers"))
    if not any(part.get("type") in ("Replace", "Prepend", "Precompiled") for part in parts):
        return  # the others make a character a few at most
    steps = [(_worst(part), _step(part, load)) for part in parts]
    patterns = [(part.get("pattern") or {}).get("String") for part in parts]
    for text in dict.fromkeys((SAMPLE, *filter(None, patterns))):
        grown = text
        for worst, step in steps:
            if worst(grown) > MOST_WORK:
                raise ValueError(_multiplies(text))
            grown = step(grown)
            if len(grown) > MOST_GROWN:
                raise ValueError(_multiplies(text))


def _multiplies(text: str) -> str:
    return f"its normalizer makes more than {MOST_GROWN:,} characters of the text {text[:20]!r}"


def _worst(part: Mapping[str, Any]) -> Callable[[str], int]:
    """Characters that a step makes of a text, at most."""
    if part["type"] == "Prepend":
        return lambda text: len(text) + len(part["prepend"])
    if part["type"] == "Replace":
        content, pattern = len(part["content"]), part["pattern"].get("String")
        if pattern:
            return lambda text: len(text) + text.count(pattern) * content
        return lambda text: len(text) + (len(text) + 1) * content
    if part["type"] == "Precompiled":
        longest = _longest(part.get("precompiled_charsmap"))
        return lambda text: len(text) * longest
    return lambda text: len(text) * 32  # a decomposed ligature has 18


def _longest(charsmap: Any) -> int:
    """Bytes of the longest text that SentencePiece's map has for a character."""
    raw = base64.b64decode(charsmap) if isinstance(charsmap, str) else bytes(charsmap or ())
    texts = raw[4 + int.from_bytes(raw[:4], "little") :]
    return max(map(len, texts.split(b"\0")), default=0) + 1


def _step(part: Mapping[str, Any], load: Callable[[str], Any]) -> Step:
    """One step of the normalizer, as the library runs it."""
    model = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
    normalizer = load(
        json.dumps({"version": "1.0", "added_tokens": [], "normalizer": part, "model": model})
    ).normalizer
    step: Step = normalizer.normalize_str
    return step
