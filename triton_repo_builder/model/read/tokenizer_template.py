"""A marker after the first token of every text ([Q], [D] of ColBERT), put into tokenizer.json's own template.

So the served tokenizer needs no code for it, and truncation leaves room for it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read.tokenizer import FILE, TokenizerSpec, token_id


@dataclass(frozen=True, kw_only=True)
class TokenRules:
    """Changes that a task makes to the tokenizer."""

    marker: str | None = None
    """A token put after the first one of every text."""
    max_length: int | None = None
    max_length_from: str = ""
    pad_to: int = 0
    """Every text has this many tokens; 0: as ``--padding`` says."""
    pad_token: str | None = None


def apply(spec: TokenizerSpec, rules: TokenRules) -> TokenizerSpec:
    """The tokenizer as the rules want it. Raises ``TrbError``."""
    library = spec.library
    if rules.pad_token is not None:
        spec = replace(spec, pad_id=_id(library, rules.pad_token, spec))
    if rules.max_length and (spec.max_length is None or rules.max_length < spec.max_length):
        spec = replace(spec, max_length=rules.max_length, max_length_from=rules.max_length_from)
    if rules.marker is None:
        return spec
    number = _id(library, rules.marker, spec)
    document = json.loads(spec.served)
    template = _template(document.get("post_processor") or {})
    if template is None:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"its template has no special token first, to put before '{rules.marker}' would go",
            where=str(spec.file),
            remedy="use --task embedding --pooling mean, or --raw-output",
        )
    piece = {"SpecialToken": {"id": rules.marker, "type_id": 0}}
    template["single"].insert(1, piece)
    template["special_tokens"][rules.marker] = {
        "id": rules.marker,
        "ids": [number],
        "tokens": [rules.marker],
    }
    _put(document, template)
    content = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return replace(spec, content=content, special_tokens=spec.special_tokens + 1)


def without_types(spec: TokenizerSpec) -> TokenizerSpec:
    """The tokenizer with token type 0 for every token, of the second text of a pair as well."""
    document = json.loads(spec.served)
    template = document.get("post_processor") or {}
    if template.get("type") == "BertProcessing":
        document["post_processor"] = _template(template)
    _clear_types(document.get("post_processor"))
    if document == json.loads(spec.served):
        return spec
    content = json.dumps(document, indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return replace(spec, content=content)


def plain(spec: TokenizerSpec) -> TokenizerSpec:
    """The tokenizer as StaticEmbedding of sentence-transformers takes it: tokenizer.json and nothing else.

    No special tokens come around a text, and a long one is cut only if that file has saved where.
    """
    document = json.loads(files.read(spec.file) if spec.file.name == FILE else spec.served)
    cut = document.get("truncation") or {}
    document["post_processor"] = None
    content = json.dumps(document, indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass")
    changed = replace(
        spec,
        content=content,
        special_tokens=0,
        max_length=cut.get("max_length"),
        max_length_from=FILE,
        truncation_side=str(cut.get("direction", "right")).lower(),
        lowered=False,
        splits_special=False,
    )
    ids = (changed.library.get_vocab(with_added_tokens=added).values() for added in (True, False))
    largest, largest_own = (max(numbers, default=0) for numbers in ids)
    return replace(changed, largest_id=largest, largest_own_id=largest_own)


def _clear_types(value: Any) -> None:
    """Set every ``type_id`` below ``value`` to 0."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        _clear_types(item)
    if isinstance(value, dict) and "type_id" in value:
        value["type_id"] = 0


def _id(library: Any, token: str, spec: TokenizerSpec) -> int:
    number = token_id(library, token)
    if number is None:
        raise TrbError(
            Code.TOKENIZER_INVALID,
            f"it has no token '{token}', which the model's files name",
            where=str(spec.file),
            remedy="use the tokenizer that was saved with the trained model",
        )
    return int(number)


def _template(processor: dict[str, Any]) -> dict[str, Any] | None:
    """A copy, as a TemplateProcessing that begins with a special token; None if it does not."""
    kind = processor.get("type")
    if kind == "Sequence":
        templates = (_template(inner) for inner in processor["processors"])
        return next((template for template in templates if template), None)
    if kind == "TemplateProcessing":
        template: dict[str, Any] = json.loads(json.dumps(processor))
        return template if template["single"] and "SpecialToken" in template["single"][0] else None
    if kind not in ("BertProcessing", "RobertaProcessing"):
        return None
    names = {"first": processor["cls"], "last": processor["sep"]}
    pieces = {role: {"SpecialToken": {"id": name, "type_id": 0}} for role, (name, _) in names.items()}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    # Pairs are never sent; the library wants a template for them all the same.
    other = {"Sequence": {"id": "B", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [pieces["first"], text, pieces["last"]],
        "pair": [pieces["first"], text, pieces["last"], other, pieces["last"]],
        "special_tokens": {
            name: {"id": name, "ids": [number], "tokens": [name]} for name, number in names.values()
        },
    }


def _put(document: dict[str, Any], template: dict[str, Any]) -> None:
    """Replace the processor that the template was made from."""
    processor = document["post_processor"]
    if processor.get("type") != "Sequence":
        document["post_processor"] = template
        return
    for position, inner in enumerate(processor["processors"]):
        if _template(inner) is not None:
            processor["processors"][position] = template
            return
