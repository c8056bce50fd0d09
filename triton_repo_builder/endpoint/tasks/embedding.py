"""Sentence embedding: token vectors pooled and normalised in the graph, as sentence-transformers does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks.support import head_output, modality, prompts, saved_modules
from triton_repo_builder.endpoint.tasks.support import layers as module_layers
from triton_repo_builder.endpoint.tasks.support.layers import Layer
from triton_repo_builder.endpoint.tasks.support.prompts import Prompt
from triton_repo_builder.endpoint.tasks.support.reference import unit_length
from triton_repo_builder.endpoint.tasks.task import Arrays, Kind, TaskPlan, architecture, by_rank
from triton_repo_builder.model.graph.heads import pooling as heads_pooling
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read.options import BuildOptions, usage
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.model.read.source import Source

NAME = "embedding"
KIND = Kind.TEXT
OPTIONS = ("pooling", "normalize", "truncate_dim", "prompt")
ARCHITECTURES: tuple[str, ...] = ()
POOLER = "pooler_output"
TOKENS = ("last_hidden_state", "token_embeddings", "hidden_states", "output")
DENSE = "dense_vecs"
"""BGE-M3's sentence embedding; its other outputs are sparse_vecs and colbert_vecs."""
PROJECTED = ("text_embeds", "text_features")
"""Outputs of a model of two towers, which sentence-transformers' files do not describe."""
POOLED = ("sentence_embedding", *PROJECTED, "pooled", "embedding", "embeddings", DENSE)
UNKNOWN_COUNT = (
    "unknown tokens count, as in sentence-transformers; encode of model2vec itself leaves them out"
)
TOWERS = ("ModelWithProjection",)
"""Ends of the architectures whose one output is such a vector, whatever the export calls it."""


def fits(source: Source) -> bool:
    """A sentence-transformers folder, or a model that gives token vectors or pooled ones."""
    signature = source.signature
    if signature.output("sentence_embedding") or source.skeleton.flat or saved_modules.modules(source):
        return True
    if _pools_itself(source):
        return True
    if signature.output(head_output.LOGITS):
        return False
    tower = architecture(source, *TOWERS) and by_rank(signature, 2)
    return bool(_tokens(source, TOKENS) or _candidates(source) or _pooled(source, POOLED) or tower)


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """Pooling and normalisation from the sentence-transformers files, else from the options."""
    if options.pooling is not None and not set(options.pooling.split("+")) <= {*heads_pooling.POOLINGS}:
        raise usage(
            "pooling", f"'{options.pooling}' is unknown", f"use one of {', '.join(heads_pooling.POOLINGS)}"
        )
    signature, model_type = source.signature, source.config.get("model_type")
    names = (*POOLED, POOLER) if _pools_itself(source) else POOLED
    pooled = _pooled(source, names)
    if pooled is None and _tokens(source, TOKENS) is None and not _candidates(source):
        pooled = by_rank(signature, 2)
        pooled = None if pooled is not None and pooled.name.endswith(head_output.LOGITS) else pooled
    in_graph = pooled is not None and options.pooling is None
    if saved_modules.model_type(source) == saved_modules.CROSS_ENCODER:
        described = _of_cross_encoder(source, options, in_graph=in_graph)
    else:
        modality.check(source, None if in_graph else _tokens(source, TOKENS))
        described = saved_modules.described(source, pooled=pooled.name if pooled and in_graph else None)
    pooling, layers = options.pooling or described.pooling, described.layers
    normalise = described.normalise if options.normalize is None else options.normalize
    prompt = replace(prompts.read(source, options), pooled=saved_modules.pools_prompt(source))
    if pooled is not None and in_graph:
        if prompt.text and not prompt.pooled:
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"include_prompt is false, and output '{pooled.name}' pools the prompt's tokens, too",
                where=str(source.folder / prompts.FILE),
                remedy="export the model with its token vectors, or give --prompt '' to serve it without",
            )
        full = module_layers.width(layers, pooled.dims[-1] if pooled.shape else -1)
        keep = _keep(source, options, full)
        # Pooled by the model itself; normalising a normalised vector changes nothing.
        projected = pooled.name in (*PROJECTED, POOLER) or architecture(source, *TOWERS)
        left = () if projected else saved_modules.left_behind(source, options)
        if pooled.name == DENSE and (others := [s.name for s in signature.outputs if s.name != DENSE]):
            left = (*left, f"output '{DENSE}' is served; {', '.join(others)}: --raw-output serves them all")
        left = (*left, *modality.note(source), *saved_modules.own_code(source))
        left = (*left, *((UNKNOWN_COUNT,) if source.skeleton.flat and model_type == "model2vec" else ()))
        return _task(
            pooled.name, pooled.shape, None, layers, normalise, signature.opset, prompt, keep, left=left
        )
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
    size = tokens.dims[-1]
    full = module_layers.width(layers, size * len(pooling.split("+")) if size > 0 else -1)
    skip = prompts.tokens(source, prompt.text) if prompt.text and not prompt.pooled else 0
    keep = _keep(source, options, full)
    left = (
        *saved_modules.left_behind(source, options),
        *modality.note(source),
        *saved_modules.own_code(source),
    )
    if options.pooling is None:
        left = (*left, *saved_modules.other_width(source, tokens.dims[-1]))
    if tokens.name not in TOKENS:
        left = (*left, f"the token vectors are output '{tokens.name}'")
    return _task(
        tokens.name, tokens.shape, pooling, layers, normalise, signature.opset, prompt, keep, skip, left
    )


def _pooled(source: Source, names: tuple[str, ...]) -> TensorSpec | None:
    """The output of one vector for each text, by its name."""
    named = filter(None, map(source.signature.output, names))
    return next((spec for spec in named if spec.shape is None or len(spec.shape) == 2), None)


def _pools_itself(source: Source) -> bool:
    """Whether the model was trained to give ``pooler_output``: DPR's and SigLIP's are, not BERT's."""
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
    """The output of token vectors; None if there is none or more than one. Scores of tokens do not count."""
    for name in names:
        spec = source.signature.output(name)
        if spec is not None and len(spec.shape or ()) == 3:
            return spec
    candidates = _candidates(source)
    return source.signature.output(candidates[0]) if len(candidates) == 1 else None


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


def _of_cross_encoder(source: Source, options: BuildOptions, *, in_graph: bool) -> saved_modules.Described:
    """Without its modules, which give a score. ``TrbError`` if neither graph nor options say how to pool."""
    if in_graph or options.pooling:
        return saved_modules.Described()
    raise TrbError(
        Code.TASK_UNCLEAR,
        f"{prompts.FILE} says that it is a cross-encoder, which scores pairs of texts",
        where=str(source.path),
        remedy=f"use --task rerank, or give --pooling {'|'.join(heads_pooling.POOLINGS)} for embeddings",
    )


def vectors(
    hidden: npt.NDArray[Any],
    mask: npt.NDArray[Any],
    pooling: str | None,
    layers: Sequence[Layer],
    skip: int = 0,
) -> npt.NDArray[Any]:
    """The head in numpy: token vectors [rows, tokens, width], or pooled ones, → [rows, values]."""
    rows = hidden.astype(np.float64)
    if pooling is not None:
        modes = pooling.split("+")
        pairs = list(zip(rows, mask, strict=True))
        rows = np.stack([np.concatenate([_pool(h, m, mode, skip) for mode in modes]) for h, m in pairs])
    for layer in layers:
        rows = layer.apply(rows)
    return rows


def _task(
    output: str,
    shape: Any,
    pooling: str | None,
    layers: tuple[Layer, ...],
    normalise: bool,
    opset: int,
    prompt: Prompt,
    keep: int | None,
    skip: int = 0,
    left: tuple[str, ...] = (),
) -> TaskPlan:
    """``keep``: values of the embedding; ``skip``: tokens of the prompt, if they are not pooled.

    ``left`` notes settings that the export lost.
    """
    width = shape[-1] if shape and isinstance(shape[-1], int) else None
    bind = {"hidden": output} | ({"attention_mask": "attention_mask"} if pooling else {})
    text = heads_pooling.embedding(
        pooling=pooling,
        normalise=normalise,
        width=width,
        opset=opset,
        layers=[layer.graph for layer in layers],
        skip=skip,
        keep=keep,
    )
    full = (width or -1) * (len(pooling.split("+")) if pooling and width else 1)
    width = keep or module_layers.width(layers, full)

    def reference(outputs: Arrays, mask: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        rows = vectors(outputs[output], mask, pooling, layers, skip)
        if normalise:
            rows = unit_length(rows)
        return {"embedding": rows[:, :keep].astype(np.float32)}

    return TaskPlan(
        name=NAME,
        head=Head(text=text, bind=bind, floats=module_layers.floats(layers)),
        outputs=(TensorPlan(name="embedding", data_type="TYPE_FP32", dims=(width,)),),
        reference=reference,
        encoding=prompt.encoding,
        encode=prompt.encode if prompt.text else None,
        notes=(*prompt.notes, *left),
        facts=(
            ("pooling", pooling or "in the model"),
            *module_layers.facts(layers),
            ("normalize", normalise),
            *((("truncate_dim", keep),) if keep else ()),
            *prompt.facts,
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
