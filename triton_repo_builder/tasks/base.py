"""What a task is: the head it puts into the graph, its outputs, and the same arithmetic in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from triton_repo_builder.dtypes import INT32, INT64
from triton_repo_builder.plan import Head, TensorPlan
from triton_repo_builder.signature import ModelSignature, TensorSpec

Arrays = Mapping[str, npt.NDArray[Any]]

TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
"""The graph inputs that a tokenizer can fill."""


@dataclass(frozen=True, kw_only=True)
class TokenRules:
    """What a task asks of the tokens beyond what tokenizer.json says."""

    marker: str | None = None
    """A token put after the first one of every text."""
    max_length: int | None = None
    max_length_from: str = ""
    pad_to: int = 0
    """Every text has this many tokens; 0: as ``--padding`` says."""
    pad_token: str | None = None


@dataclass(frozen=True, kw_only=True)
class TaskPlan:
    """One task for one model.

    ``reference`` computes the endpoint's outputs from the original model's outputs, its ``input_ids`` and
    the attention mask (all [rows, ...]), in numpy and apart from the head, so that the two can be compared.
    """

    name: str
    head: Head | None
    outputs: tuple[TensorPlan, ...]
    """The model's outputs after the head, dims without the batch axis."""
    reference: Callable[[Arrays, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]
    labels: tuple[str, ...] = ()
    facts: tuple[tuple[str, Any], ...] = ()
    """What was decided, for the manifest: pooling, activation."""
    notes: tuple[str, ...] = ()
    sparse: tuple[tuple[str, str], ...] = ()
    """Outputs (values, indices) that list the entries of a row that are not 0."""
    fillers: tuple[tuple[str, float], ...] = ()
    """What ends the rows of an output whose rows differ in length."""
    rules: TokenRules | None = None


def takes_text(signature: ModelSignature) -> bool:
    """Whether a tokenizer can fill every input of the model: rows of numbers, ids as integers."""
    names = {spec.name for spec in signature.inputs}
    ids = signature.input("input_ids")
    return (
        ids is not None
        and ids.dtype in (INT32, INT64)
        and names <= set(TEXT_INPUTS)
        and all(s.dtype.size and s.shape is not None and len(s.shape) == 2 for s in signature.inputs)
    )


def by_rank(signature: ModelSignature, rank: int, *names: str) -> TensorSpec | None:
    """The output called one of ``names``, else the first one of that rank."""
    for name in names:
        spec = signature.output(name)
        if spec and spec.shape is not None and len(spec.shape) == rank:
            return spec
    return next((s for s in signature.outputs if s.shape is not None and len(s.shape) == rank), None)
