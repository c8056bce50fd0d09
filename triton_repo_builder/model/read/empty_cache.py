"""Inputs that hold the cache of a text generator, in an export that only gives vectors or labels.

Exporters write them for every decoder (``past_key_values.0.key``, float[batch, heads, past, width]). A
request for a vector has no earlier tokens: the cache is of length 0, and the served graph does without.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton_repo_builder.base.dtypes import DType
from triton_repo_builder.model.read.signature import ModelSignature, TensorSpec

PAST = "past_key_values"
PRESENT = "present."
"""How an output that gives the cache for the next token begins."""
IDS = "input_ids"


@dataclass(frozen=True, kw_only=True)
class EmptyCache:
    """One input of the file that the served graph has no more: of no length in every request."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    """Sizes: rows first, 1 here; the axis of earlier tokens is 0."""


def recognise(signature: ModelSignature) -> tuple[EmptyCache, ...]:
    """The cache of a model that generates nothing; none of one that does, or where an axis is unclear."""
    past = [spec for spec in signature.inputs if spec.name.startswith(PAST)]
    caches = tuple(cache for spec in past if (cache := _empty(spec)))
    if generates(signature) or len(caches) < len(past) or signature.input(IDS) is None:
        return ()
    return caches


def generates(signature: ModelSignature) -> bool:
    """Whether it scores the next token (logits [batch, tokens, vocabulary]) or gives the cache alone."""
    logits = signature.output("logits")
    answers = [spec for spec in signature.outputs if not spec.name.startswith(PRESENT)]
    return not answers or (logits is not None and (logits.shape is None or len(logits.shape) > 2))


def _empty(spec: TensorSpec) -> EmptyCache | None:
    sizes = (spec.shape or ())[1:]
    free = [size for size in sizes if not isinstance(size, int)]
    if len(free) != 1 or isinstance((spec.shape or (1,))[0], int):
        return None
    shape = (1, *(size if isinstance(size, int) else 0 for size in sizes))
    return EmptyCache(name=spec.name, dtype=spec.dtype, shape=shape)
