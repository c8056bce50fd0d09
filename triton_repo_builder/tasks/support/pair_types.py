"""Models of one token type beside a tokenizer that numbers the texts of a pair 0 and 1."""

from __future__ import annotations

from triton_repo_builder.read.source import Source


def beyond(source: Source) -> str:
    """Why the model cannot read a pair; empty if it can."""
    types = source.config.get("type_vocab_size")
    if not isinstance(types, int) or types < 1 or source.signature.input("token_type_ids") is None:
        return ""
    largest = max(source.tokenizer_spec.library.encode("a", "b").type_ids, default=0)
    if largest < types:
        return ""
    return (
        f"the tokenizer gives the second text of a pair the type {largest}, and the model has {types} "
        "(type_vocab_size in config.json)"
    )
