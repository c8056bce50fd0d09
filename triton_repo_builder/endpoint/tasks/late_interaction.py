"""Late interaction (ColBERT): one vector per token, projected and normalised in the graph.

Markers, lengths and what does not count come from the files of PyLate (config_sentence_transformers.json) or
of the original ColBERT (artifact.metadata). A query is filled up with mask tokens, whose vectors count, too.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base import containment
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import DAMAGED
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks import embedding
from triton_repo_builder.endpoint.tasks.support import layers, modality, prompts, saved_modules
from triton_repo_builder.endpoint.tasks.support.reference import unit_length
from triton_repo_builder.endpoint.tasks.task import (
    Arrays,
    Encoded,
    Example,
    Kind,
    TaskPlan,
    tokens_axis,
)
from triton_repo_builder.model.graph.heads import colbert as heads_colbert
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read import tokenizer
from triton_repo_builder.model.read.options import BuildOptions, usage
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.model.read.tokenizer_template import TokenRules

NAME = "late-interaction"
KIND = Kind.TEXT
OPTIONS = ("query", "query_length")
ARCHITECTURES: tuple[str, ...] = ()
PYLATE, COLBERT = prompts.FILE, "artifact.metadata"
TOKENS = ("token_embeddings", "contextual", *embedding.TOKENS)
QUERY_LENGTH, DOCUMENT_LENGTH = 32, 180
"""Defaults of the ColBERT paper and of PyLate."""


@dataclass(frozen=True, kw_only=True)
class LateInteractionSettings:
    """Settings from the model's files."""

    origin: str
    query: str
    document: str
    query_length: int
    document_length: int
    attend: bool
    """Whether the mask tokens that fill up a query are attended to."""
    expand: bool
    skip: tuple[str, ...]
    """Tokens of a document whose vectors do not count."""


def fits(source: Source) -> bool:
    """PyLate's modules, or the metadata of a ColBERT checkpoint."""
    return bool(source.settings(COLBERT)) or any(
        str(entry.get("type", "")).startswith("pylate.") for entry in saved_modules.modules(source)
    )


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """Projection, markers and lengths from the model's files. Raises ``TrbError``."""
    tokens = embedding.need_tokens(source, TOKENS)
    prompts.refuse(source, NAME)
    modality.check(source)
    settings = _settings(source)
    is_query = bool(options.query or options.query_length)
    if options.query is False and options.query_length:
        raise usage("query_length", "does not apply to documents", "leave it out, or use --query")
    width = tokens.dims[2] if tokens.dims[2] > 0 else None
    projection = _projection(source, width)
    expanded = is_query and settings.expand
    if expanded and settings.attend:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            "queries whose mask tokens are attended to are not supported",
            where=str(source.folder / settings.origin),
            remedy="serve its documents with --document, or the model with --raw-output",
        )
    skip = () if is_query else _ids(source, settings.skip)
    rows = source.signature.vocabulary or source.config.get("vocab_size")
    rows = max(int(rows or 0), max(skip, default=0) + 1) if skip else 0
    kept = np.ones(rows, np.float32)
    kept[list(skip)] = 0
    out = projection.shape[1] if projection is not None else width
    floats = [("projection", projection)] if projection is not None else []
    floats += [("kept_tokens", kept)] if skip else []
    bind = {"hidden": tokens.name, "attention_mask": "attention_mask"}
    axis = tokens_axis(source)
    return TaskPlan(
        name=NAME,
        head=Head(
            text=heads_colbert.head(
                width=width,
                out=out,
                project=projection is not None,
                keep=rows if skip else None,
                expanded=expanded,
                opset=source.signature.opset,
            ),
            bind=bind | ({"input_ids": "input_ids"} if skip else {}),
            floats=tuple((name, tuple(a.shape), a.astype("<f4").tobytes()) for name, a in floats),
        ),
        outputs=(
            TensorPlan(name="token_embeddings", data_type="TYPE_FP32", dims=(axis, out or -1)),
            TensorPlan(name="mask", data_type="TYPE_INT32", dims=(axis,)),
        ),
        reference=_reference(tokens.name, projection, skip, expanded),
        facts=(("encodes", "queries" if is_query else "documents"), ("width", out)),
        notes=_notes(settings, is_query),
        pad_values=(("token_embeddings", 0), ("mask", 0)),
        rules=_rules(source, settings, options, is_query, expanded),
        encode=_encode(settings.query if is_query else settings.document),
    )


def _encode(marker: str) -> Any:
    """Encode as PyLate: one token less than there is room for, and the marker inserted afterwards."""

    def encode(library: Any, example: Example, limit: int | None) -> list[Encoded]:
        room = limit - 1 if limit is not None and marker else limit
        row = library(example["TEXT"][0], truncation=limit is not None, max_length=room, padding=False)
        ids = list(row["input_ids"])
        if marker:
            ids.insert(1, library.convert_tokens_to_ids(marker))
        return [{"input_ids": ids, "token_type_ids": [0] * len(ids)}]

    return encode


def _rules(
    source: Source, settings: LateInteractionSettings, options: BuildOptions, is_query: bool, expanded: bool
) -> TokenRules:
    length = (options.query_length or settings.query_length) if is_query else settings.document_length
    mask_token = source.settings("tokenizer_config.json").get("mask_token", "[MASK]")
    mask_token = mask_token.get("content") if isinstance(mask_token, dict) else mask_token
    return TokenRules(
        marker=(settings.query if is_query else settings.document) or None,
        max_length=length,
        max_length_from="--query-length" if is_query and options.query_length else settings.origin,
        pad_to=length if expanded else 0,
        pad_token=str(mask_token) if expanded else None,
    )


def _settings(source: Source) -> LateInteractionSettings:
    try:
        return _stated(source)
    except DAMAGED as error:
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"a length or a word of {PYLATE} or {COLBERT} cannot be read: {error}",
            where=str(source.folder),
            remedy="get the original file again from the model's source",
        ) from None


def _stated(source: Source) -> LateInteractionSettings:
    pylate = source.settings(PYLATE)
    if "query_length" in pylate or "document_length" in pylate or "query_prefix" in pylate:
        return LateInteractionSettings(
            origin=PYLATE,
            query=str(pylate.get("query_prefix") or ""),
            document=str(pylate.get("document_prefix") or ""),
            query_length=int(pylate.get("query_length") or QUERY_LENGTH),
            document_length=int(pylate.get("document_length") or DOCUMENT_LENGTH),
            attend=bool(pylate.get("attend_to_expansion_tokens")),
            expand=bool(pylate.get("do_query_expansion", True)),
            skip=tuple(map(str, pylate.get("skiplist_words") or ())),
        )
    colbert = source.settings(COLBERT)
    return LateInteractionSettings(
        origin=COLBERT if colbert else "",
        query=str(colbert.get("query_token_id") or ""),
        document=str(colbert.get("doc_token_id") or ""),
        query_length=int(colbert.get("query_maxlen") or QUERY_LENGTH),
        document_length=int(colbert.get("doc_maxlen") or DOCUMENT_LENGTH),
        attend=bool(colbert.get("attend_to_mask_tokens")),
        expand=True,
        skip=tuple(string.punctuation) if colbert.get("mask_punctuation") else (),
    )


def _notes(settings: LateInteractionSettings, is_query: bool) -> tuple[str, ...]:
    if settings.origin:
        return ()
    kind = f"queries of {QUERY_LENGTH} tokens" if is_query else f"documents of up to {DOCUMENT_LENGTH} tokens"
    return (f"neither {PYLATE} nor {COLBERT} beside the model: no marker tokens, {kind}",)


def _ids(source: Source, words: tuple[str, ...]) -> tuple[int, ...]:
    """Ids of the words that the tokenizer has as one token."""
    if not words:
        return ()
    ids = (tokenizer.token_id(source.tokenizer_spec.library, word) for word in words)
    return tuple(sorted({number for number in ids if number is not None}))


def _projection(source: Source, width: int | None) -> npt.NDArray[np.float32] | None:
    """[width, out], from the files beside the model; None if the graph has projected already.

    Raises ``TrbError`` UNSUPPORTED_MODEL.
    """
    folders = [
        entry["folder"] / str(entry.get("path", ""))
        for entry in saved_modules.modules(source)
        if saved_modules.kind(entry) == "Dense"
    ]
    weights = [_dense(folder) for folder in folders] or _linear(source.folder)
    if not weights:
        return None
    whole = weights[0]
    for weight in weights[1:]:
        if weight.shape[0] != whole.shape[1]:
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"a Dense module takes {weight.shape[0]} numbers, the one before it gives {whole.shape[1]}",
                where=str(source.folder / "modules.json"),
                remedy="use the modules that were saved with this model",
            )
        whole = whole @ weight
    if width is None or width == whole.shape[0]:
        return whole
    if width == whole.shape[1]:
        return None
    raise TrbError(
        Code.UNSUPPORTED_MODEL,
        f"the projection takes vectors of {whole.shape[0]} numbers, the model gives {width}",
        where=str(source.path),
        remedy="use the projection that was saved with this model",
    )


def _dense(folder: Path) -> npt.NDArray[np.float32]:
    config: Mapping[str, Any] = tokenizer.settings(folder, "config.json")
    layer = layers.read(folder)
    if layer.activation != "none" or layer.bias.any() or config.get("use_residual"):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            "a Dense module with activation, bias or residual is not supported for late interaction",
            where=str(folder),
            remedy="export the model with that module inside the graph",
        )
    return layer.weight


def _linear(folder: Path) -> list[npt.NDArray[np.float32]]:
    """``linear.weight`` of a ColBERT checkpoint, which is among the model's own weights."""
    file = containment.within(folder, layers.FILE)
    if file is None:
        return []
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), framework="np") as tensors:
            if "linear.weight" not in tensors.keys():  # noqa: SIM118  no mapping
                return []
            return [np.ascontiguousarray(tensors.get_tensor("linear.weight").astype(np.float32).T)]
    except SafetensorError as error:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"the weights of the projection cannot be read: {error}",
            where=str(file),
            remedy="get the original file again from the model's source",
        ) from None


def _reference(
    output: str, projection: npt.NDArray[Any] | None, skip: tuple[int, ...], expanded: bool
) -> Any:
    def reference(outputs: Arrays, mask: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        vectors = outputs[output].astype(np.float64)
        vectors = vectors if projection is None else vectors @ projection.astype(np.float64)
        vectors = unit_length(vectors)
        counts = np.ones_like(mask) if expanded else mask * ~np.isin(outputs["input_ids"], skip)
        return {
            "token_embeddings": (vectors * counts[:, :, None]).astype(np.float32),
            "mask": counts.astype(np.int32),
        }

    return reference
