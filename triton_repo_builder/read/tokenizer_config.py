"""What tokenizer_config.json changes in the tokenizer.json beside it.

For transformers, tokenizer_config.json has the last word: BERT's family lower-cases as ``do_lower_case``
says, and a byte-level tokenizer puts a space before a text as ``add_prefix_space`` says. The server knows
tokenizer.json only, so the difference is written into the one that is served.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

_LOWERING = {
    f"{name}Tokenizer"
    for name in (
        "Bert",
        "ConvBert",
        "DistilBert",
        "Electra",
        "Funnel",
        "LayoutLM",
        "LayoutLMv2",
        "Lxmert",
        "MPNet",
        "MobileBert",
        "RoFormer",
        "Splinter",
        "SqueezeBert",
    )
}
"""The classes of transformers that rewrite their BertNormalizer when they are made."""


def lowered(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """tokenizer.json that makes texts lower-case first; None if it does so already.

    As sentence-transformers does it for ``do_lower_case`` of sentence_bert_config.json.
    """
    normalizer: Mapping[str, Any] = document.get("normalizer") or {}
    steps = normalizer["normalizers"] if normalizer.get("type") == "Sequence" else [normalizer]
    if any(step.get("type") == "Lowercase" or step.get("lowercase") for step in steps):
        return None
    own = [step for step in steps if step]
    return {**document, "normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *own]}}


def applied(document: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """tokenizer.json as transformers uses it with these settings; None if nothing changes."""
    if not settings:
        return None
    changed = copy.deepcopy(dict(document))
    normalizer = changed.get("normalizer")
    kind = str(settings.get("tokenizer_class", "")).removesuffix("Fast")
    if kind in _LOWERING and normalizer and normalizer.get("type") == "BertNormalizer":
        normalizer["lowercase"] = settings.get("do_lower_case", True)
        normalizer["strip_accents"] = settings.get("strip_accents")
        if kind != "MPNetTokenizer":
            normalizer["handle_chinese_chars"] = settings.get("tokenize_chinese_chars", True)
    splitter = changed.get("pre_tokenizer")
    if splitter and "add_prefix_space" in splitter:
        splitter["add_prefix_space"] = bool(settings.get("add_prefix_space", False))
    return None if changed == document else changed
