"""Models that are not given the types by which a tokenizer tells the texts of a pair apart, 0 and 1."""

from __future__ import annotations

from triton_repo_builder.model.read.source import Source


def beyond(source: Source) -> str:
    """Why the model cannot read a pair; empty if it can."""
    types = source.config.get("type_vocab_size")
    if not isinstance(types, int) or types < 1:
        return ""
    takes_types = _takes_types(source)
    if not takes_types and (types == 1 or not source.tokenizer_spec.gives_types):
        return ""
    largest = max(source.tokenizer_spec.library.encode("a", "b").type_ids, default=0)
    if largest == 0 or (takes_types and largest < types):
        return ""
    return f"the tokenizer gives the second text of a pair the type {largest}, and " + (
        f"the model has {types} (type_vocab_size in config.json)"
        if takes_types
        else f"the graph has no input token_type_ids, though the model has {types} types"
    )


def remedy(source: Source) -> str:
    """The remedy for a model whose only use is pairs."""
    first = (
        "use the tokenizer that the model was trained with (--tokenizer)"
        if _takes_types(source)
        else "export it again with token_type_ids (as optimum-cli does)"
    )
    return (
        f"{first}; if all types were 0 in training, leave token_type_ids out of model_input_names in "
        "tokenizer_config.json"
    )


def _takes_types(source: Source) -> bool:
    return source.signature.input("token_type_ids") is not None
