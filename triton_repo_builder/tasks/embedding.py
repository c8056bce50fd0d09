"""Sentence embedding: token vectors pooled and normalised in the graph, as sentence-transformers does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.graph.heads import pooling as heads_pooling
from triton_repo_builder.plan.model import Head, TensorPlan
from triton_repo_builder.read.options import BuildOptions, usage
from triton_repo_builder.read.signature import TensorSpec
from triton_repo_builder.read.source import Source
from triton_repo_builder.tasks.support import head_output, prompts, saved_modules
from triton_repo_builder.tasks.support.dense import Dense
from triton_repo_builder.tasks.support.prompts import Prompt
from triton_repo_builder.tasks.support.reference import unit_length
from triton_repo_builder.tasks.task import Arrays, Kind, TaskPlan, by_rank

NAME = "embedding"
KIND = Kind.TEXT
OPTIONS = ("pooling", "normalize", "truncate_dim", "prompt")
ARCHITECTURES: tuple[str, ...] = ()
POOLER = "pooler_output"
TOKENS = ("last_hidden_state", "token_embeddings", "hidden_states", "output")
DENSE = "dense_vecs"
"""BGE-M3's sentence embedding; its other outputs are sparse_vecs and colbert_vecs."""
POOLED = ("sentence_embedding", "text_embeds", "pooled", "embedding", "embeddings", DENSE)

PROJECTED = ("text_embeds",)
"""Of a model of two towers, which sentence-transformers' files do not describe."""


def fits(source: Source) -> bool:
    """A sentence-transformers folder, or a model that gives token vectors."""
    signature = source.signature
    if signature.output("sentence_embedding") or saved_modules.modules(source):
        return True
    if _pools_itself(source):
        return True
    return bool(_tokens(source, TOKENS) or _candidates(source)) and not signature.output(head_output.LOGITS)


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """Pooling and normalisation from the sentence-transformers files, else from the options."""
    if options.pooling is not None and options.pooling not in heads_pooling.POOLINGS:
        raise usage(
            "pooling", f"'{options.pooling}' is unknown", f"use one of {', '.join(heads_pooling.POOLINGS)}"
        )
    signature = source.signature
    names = (*POOLED, POOLER) if _pools_itself(source) else POOLED
    named = filter(None, map(signature.output, names))
    pooled = next((spec for spec in named if spec.shape is None or len(spec.shape) == 2), None)
    if pooled is None and _tokens(source, TOKENS) is None and not _candidates(source):
        pooled = by_rank(signature, 2)
        pooled = None if pooled is not None and pooled.name.endswith(head_output.LOGITS) else pooled
    in_graph = pooled is not None and options.pooling is None
    pooling, normalise, layers = saved_modules.described(source, in_graph=in_graph)
    pooling = options.pooling or pooling
    normalise = normalise if options.normalize is None else options.normalize
    prompt = prompts.read(source, options)
    if pooled is not None and in_graph:
        if prompt.text and not saved_modules.pools_prompt(source):
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"include_prompt is false, and output '{pooled.name}' pools the prompt's tokens, too",
                where=str(source.folder / prompts.FILE),
                remedy="export the model with its token vectors, or give --prompt '' to serve it without",
            )
        keep = _keep(source, options, pooled.dims[-1] if pooled.shape else -1)
        # Pooled by the model itself; normalising a normalised vector changes nothing.
        left = () if pooled.name in (*PROJECTED, POOLER) else saved_modules.left_behind(source, options)
        if pooled.name == DENSE and (others := [s.name for s in signature.outputs if s.name != DENSE]):
            left = (*left, f"output '{DENSE}' is served; {', '.join(others)}: --raw-output serves them all")
        return _task(pooled.name, pooled.shape, None, (), normalise, signature.opset, prompt, keep, left=left)
    tokens = need_tokens(source, TOKENS)
    if pooling is None:
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"no file says how to pool the token vectors of output '{tokens.name}'",
            where=str(source.path),
            remedy=f"give --pooling {'|'.join(heads_pooling.POOLINGS)} "
            "(see the model card; mean and cls are usual), "
            f"or take {saved_modules.MODULES}, {saved_modules.POOLING} and {prompts.FILE}, which exporters "
            "leave behind, from the original with --from-model FOLDER",
        )
    _check_widths(tokens, layers)
    skip = (
        prompts.tokens(source, prompt.text) if prompt.text and not saved_modules.pools_prompt(source) else 0
    )
    full = layers[-1].weight.shape[1] if layers else tokens.dims[-1]
    keep = _keep(source, options, full)
    left = saved_modules.left_behind(source, options)
    if options.pooling is None:
        left = (*left, *saved_modules.other_width(source, tokens.dims[-1]))
    if tokens.name not in TOKENS:
        left = (*left, f"the token vectors are output '{tokens.name}'")
    return _task(
        tokens.name, tokens.shape, pooling, layers, normalise, signature.opset, prompt, keep, skip, left
    )


def _pools_itself(source: Source) -> bool:
    """Whether ``pooler_output`` is what the model was trained to give: DPR's and SigLIP's are, not BERT's."""
    if source.signature.output(POOLER) is None:
        return False
    alone = len(source.signature.outputs) == 1
    return alone or str(source.config.get("model_type", "")).startswith("siglip")


def need_tokens(source: Source, names: tuple[str, ...]) -> TensorSpec:
    """The output of token vectors: one of these names, or the only other that can be. Raises ``TrbError``."""
    spec = _tokens(source, names)
    if spec is None and (several := _candidates(source)):
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"several outputs could be the token vectors: {', '.join(several)}",
            where=str(source.path),
            remedy=f"export again with the last hidden state alone, or call it {names[0]}",
        )
    if spec is None:
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"the model has no output of token vectors [batch, tokens, width]; it has "
            f"{head_output.shown(source)}",
            where=str(source.path),
            remedy="export it for feature-extraction (optimum-cli export onnx --task feature-extraction), or "
            "use --task tensor to serve it as it is",
        )
    return spec


def _tokens(source: Source, names: tuple[str, ...]) -> TensorSpec | None:
    """As ``need_tokens``, None if there is none or more than one; scores of tokens are not their vectors."""
    for name in names:
        spec = source.signature.output(name)
        if spec is not None and len(spec.shape or ()) == 3:
            return spec
    found = _candidates(source)
    return source.signature.output(found[0]) if len(found) == 1 else None


def _candidates(source: Source) -> list[str]:
    """Outputs [batch, tokens, width] that are not scores."""
    outputs = source.signature.outputs
    return [s.name for s in outputs if len(s.shape or ()) == 3 and not head_output.are_scores(source, s)]


def _keep(source: Source, options: BuildOptions, full: int) -> int | None:
    """How many values of ``full`` (-1: unknown) the embedding has; None: all. Raises ``TrbError``.

    Cut after normalising, as sentence-transformers does, so the remaining vector has no length of 1.
    """
    saved = source.settings(prompts.FILE).get("truncate_dim")
    keep = options.truncate_dim or saved
    if keep is None or keep == full:
        return None
    if isinstance(keep, int) and keep > 0 and (full < 0 or keep < full):
        return keep
    if options.truncate_dim:
        raise usage("truncate_dim", f"{keep} is more than the embedding's {full} values", "lower it")
    raise TrbError(
        Code.TASK_UNCLEAR,
        f"truncate_dim is {keep!r}, and the embedding has {full} values",
        where=str(source.folder / prompts.FILE),
        remedy="correct the file",
    )


def _check_widths(tokens: TensorSpec, layers: Sequence[Dense]) -> None:
    """``TrbError`` if a Dense layer takes another number of values than its predecessor gives."""
    width, before = tokens.dims[-1], f"output '{tokens.name}'"
    for layer in layers:
        if width not in (-1, layer.weight.shape[0]):
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"the Dense module takes {layer.weight.shape[0]} values, and {before} gives {width}",
                where=str(layer.folder),
                remedy="use the module that was saved with this model",
            )
        width, before = layer.weight.shape[1], f"the Dense module before it ({layer.folder})"


def _task(
    output: str,
    shape: Any,
    pooling: str | None,
    layers: tuple[Dense, ...],
    normalise: bool,
    opset: int,
    prompt: Prompt,
    keep: int | None,
    skip: int = 0,
    left: tuple[str, ...] = (),
) -> TaskPlan:
    """``keep``: values of the embedding; ``skip``: tokens of the prompt, if they are not pooled.

    ``left`` notes what the export left behind.
    """
    width = shape[-1] if shape and isinstance(shape[-1], int) else None
    bind = {"hidden": output} | ({"attention_mask": "attention_mask"} if pooling else {})
    text = heads_pooling.embedding(
        pooling=pooling,
        normalise=normalise,
        width=width,
        opset=opset,
        dense=[layer.layer for layer in layers],
        skip=skip,
        keep=keep,
    )
    constants = [
        (f"dense_{number}_{name}", tuple(array.shape), array.astype("<f4").tobytes())
        for number, layer in enumerate(layers)
        for name, array in (("weight", layer.weight), ("bias", layer.bias))
    ]
    width = keep or (layers[-1].weight.shape[1] if layers else width)

    def reference(outputs: Arrays, mask: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        hidden = outputs[output].astype(np.float64)
        rows = (
            hidden
            if pooling is None
            else np.stack([_pool(h, m, pooling, skip) for h, m in zip(hidden, mask, strict=True)])
        )
        for layer in layers:
            rows = layer.apply(rows)
        if normalise:
            rows = unit_length(rows)
        return {"embedding": rows[:, :keep].astype(np.float32)}

    return TaskPlan(
        name=NAME,
        head=Head(text=text, bind=bind, floats=tuple(constants)),
        outputs=(TensorPlan(name="embedding", data_type="TYPE_FP32", dims=(width or -1,)),),
        reference=reference,
        encoding=prompt.encoding,
        encode=prompt.encode if prompt.text else None,
        notes=(*prompt.notes, *left),
        facts=(
            ("pooling", pooling or "in the model"),
            *((("dense", [layer.weight.shape[1] for layer in layers]),) if layers else ()),
            ("normalize", normalise),
            *((("truncate_dim", keep),) if keep else ()),
            *prompt.facts,
            *((("include_prompt", False),) if skip else ()),
        ),
    )


def _pool(hidden: npt.NDArray[Any], mask: npt.NDArray[Any], pooling: str, skip: int = 0) -> npt.NDArray[Any]:
    """One row: token vectors [tokens, width] → [width], written as one reads it in a paper.

    The first ``skip`` tokens do not count; the others keep their places in the row.
    """
    places = np.cumsum(mask)
    counted = mask.astype(bool) & (places > skip)
    tokens = hidden[counted]
    if not len(tokens):
        return np.zeros(hidden.shape[1])
    if pooling == "mean":
        return np.asarray(tokens.mean(axis=0))
    if pooling == "mean_sqrt_len":
        return np.asarray(tokens.sum(axis=0) / np.sqrt(len(tokens)))
    if pooling == "max":
        return np.asarray(tokens.max(axis=0))
    if pooling == "weightedmean":
        return np.asarray(np.average(tokens, axis=0, weights=places[counted]))
    return np.asarray(tokens[0] if pooling == "cls" else tokens[-1])
