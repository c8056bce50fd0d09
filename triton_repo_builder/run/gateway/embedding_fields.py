"""Fields of requests for embeddings that several APIs have: purpose, truncation, dimensions, encoding.

Each does what the model's own files say, or is refused.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from triton_repo_builder.run.client.codec import Array
from triton_repo_builder.run.gateway.call import Call, encoded
from triton_repo_builder.run.gateway.catalogue import Served
from triton_repo_builder.run.gateway.refusal import Refusal, invalid
from triton_repo_builder.run.gateway.triton import joined

OUTPUT = "embedding"
QUERY, DOCUMENT = "query", "document"
PROMPTS: Mapping[str, tuple[str, ...]] = {
    QUERY: ("query", "search_query", "retrieval.query", "retrieval-query"),
    DOCUMENT: (
        "document",
        "passage",
        "corpus",
        "search_document",
        "retrieval.passage",
        "retrieval-document",
    ),
    "classification": ("classification",),
    "clustering": ("clustering", "separation"),
}
"""Purpose → names that models give the prompt for it, in lower case, sentence-transformers' first."""
PURPOSES = {
    **{name: purpose for purpose, names in PROMPTS.items() for name in names},
    "search": QUERY,
}
"""Word of a request (Cohere's input_type, Jina's task, NVIDIA's input_type) → purpose."""
CUTS = ("NONE", "START", "END")
SIDES = {"left": "START", "right": "END"}
"""The end of a text that an endpoint cuts off, as requests call it."""


def prompted(served: Served, listed: Sequence[str], word: object, field: str) -> Sequence[str]:
    """The texts with the model's prompt for a purpose, or by a prompt's own name. Raises ``Refusal``.

    A query or document without a prompt of its own stays as it is, as ``encode_query`` and
    ``encode_document`` of sentence-transformers leave it.
    """
    if not isinstance(word, str):
        raise invalid(f"`{field}` must be a string", field)
    rules = served.rules
    if rules.prompts is None:
        raise invalid(
            f"`{field}`: the prompts of '{served.name}' are not known; start the gateway with --repo, or "
            "list `prompts` in gateway.toml ({} for none)",
            field,
        )
    if word in rules.prompts:
        return rules.prompted(listed, word, field)
    purpose = PURPOSES.get(word.lower())
    by_name = {name.lower(): name for name in rules.prompts}
    name = next((by_name[name] for name in PROMPTS.get(purpose or "", ()) if name in by_name), None)
    if name is not None:
        return rules.prompted(listed, name, field)
    without = not any(rules.prompts.values()) or (purpose in (QUERY, DOCUMENT) and not rules.prompt)
    if purpose is not None and without:
        return listed
    names = ", ".join(rules.prompts) or "none"
    raise invalid(f"'{served.name}' has no prompt for `{field}` '{word:.60}'; its prompts: {names}", field)


async def check_cut(call: Call, served: Served, listed: Sequence[Any], cut: object, field: str) -> None:
    """Raises ``Refusal`` if a text would be truncated otherwise than ``cut`` (NONE, START, END) says."""
    if not isinstance(cut, str) or cut.upper() not in CUTS:
        raise invalid(f"`{field}` must be one of {', '.join(CUTS)}", field)
    if cut.upper() != SIDES.get(served.rules.side):
        await check_whole(call, served, listed, field)


async def check_whole(call: Call, served: Served, listed: Sequence[Any], field: str) -> None:
    """Raises ``Refusal`` for a text, or pair of texts, that the endpoint truncates."""
    if served.rules.file is None:
        raise invalid(
            f"`{field}`: the gateway has no tokenizer of '{served.name}' to count tokens with (--repo)", field
        )
    part = "last" if served.rules.side == "left" else "first"
    for number, length in enumerate(await call.lengths(served, listed)):
        if served.rules.cut(length) < length:
            raise Refusal(
                400,
                f"text {number} has {length} tokens, of which '{served.name}' reads the {part} "
                f"{served.rules.max_length}: shorten it, or leave `{field}` out",
                field=field,
                code="context_length_exceeded",
            )


def check_dimensions(served: Served, dimensions: int | None, field: str) -> None:
    """Raises ``Refusal`` for a width that is not the endpoint's."""
    if dimensions is None:
        return
    widths = [tensor.shape[-1] for tensor in served.endpoint.outputs if tensor.name == OUTPUT]
    if widths != [dimensions]:
        width = widths[0] if widths and widths[0] > 0 else "an unknown number of"
        raise invalid(
            f"the model '{served.name}' has {width} dimensions: leave `{field}` out, or build an endpoint "
            f"with --truncate-dim {dimensions}",
            field,
        )


def check_normalized(served: Served, normalized: bool | None, field: str) -> None:
    """Raises ``Refusal`` unless the endpoint's vectors are what the request wants."""
    if normalized is None or served.rules.normalized is normalized:
        return
    if served.rules.normalized is None:
        raise invalid(f"`{field}`: it is not known whether '{served.name}' normalizes its vectors", field)
    remedy = "--normalize" if normalized else "--no-normalize"
    does = "normalizes its vectors" if served.rules.normalized else "does not normalize its vectors"
    raise invalid(f"`{field}`: '{served.name}' {does}; build an endpoint with {remedy}", field)


async def vectors(call: Call, served: Served, listed: Sequence[str], field: str) -> tuple[Array, int]:
    """The vectors [texts, width] of texts, and their tokens. Raises ``Refusal``."""
    answers, used = await call.counted(served, {"TEXT": encoded(listed, field)}, (OUTPUT,), listed)
    return joined(answers, OUTPUT).reshape(len(listed), -1), used


def as_base64(vectors: Array) -> list[str]:
    """Each vector's little-endian float32."""
    return [base64.b64encode(row.tobytes()).decode() for row in vectors.astype("<f4", copy=False)]
