"""Sentence embedding: token vectors pooled and normalised in the graph, as sentence-transformers does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder import files
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.graph.heads import pooling as heads_pooling
from triton_repo_builder.plan.model import Head, TensorPlan
from triton_repo_builder.read import tokenizer
from triton_repo_builder.read.options import BuildOptions, usage
from triton_repo_builder.read.signature import TensorSpec
from triton_repo_builder.read.source import Source
from triton_repo_builder.tasks.support import dense, head_output, prompts
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
POOLED = ("sentence_embedding", "text_embeds", "pooled", "embedding", "embeddings")

PROJECTED = ("text_embeds",)
"""Of a model of two towers, which sentence-transformers' files do not describe."""
MODULES, POOLING = "modules.json", "1_Pooling/"
ORDER = ("Pooling", "Dense", "Normalize")
"""How the head applies sentence-transformers' modules."""

# Flags of sentence-transformers' 1_Pooling/config.json.
FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def fits(source: Source) -> bool:
    """A sentence-transformers folder, or a model that gives token vectors."""
    signature = source.signature
    if signature.output("sentence_embedding") or modules(source):
        return True
    if _pools_itself(source):
        return True
    return bool(_tokens(source, TOKENS) or _candidates(source)) and not signature.output(head_output.LOGITS)


def modules(source: Source) -> list[dict[str, Any]]:
    """The entries of sentence-transformers' modules.json, or empty."""
    for place in dict.fromkeys((source.folder, *tokenizer.places(source.path.parent))):
        file = place / MODULES
        if file.is_file():
            try:
                listed = [{**entry, "folder": place} for entry in files.load_json(file.read_bytes())]
                if any("\0" in str(entry.get("path", "")) for entry in listed):
                    raise ValueError("a path holds a null byte")
                return listed
            except (OSError, ValueError, TypeError) as error:
                raise TrbError(
                    Code.TASK_UNCLEAR,
                    f"is not a list of modules: {error}",
                    where=str(file),
                    remedy="get the original file again from the model's source",
                ) from None
    return []


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
    pooling, normalise, layers = _described(source, in_graph=in_graph)
    pooling = options.pooling or pooling
    normalise = normalise if options.normalize is None else options.normalize
    prompt = prompts.read(source, options)
    if pooled is not None and in_graph:
        if prompt.text and not _pools_prompt(source):
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"include_prompt is false, and output '{pooled.name}' pools the prompt's tokens, too",
                where=str(source.folder / prompts.FILE),
                remedy="export the model with its token vectors, or give --prompt '' to serve it without",
            )
        keep = _keep(source, options, pooled.dims[-1] if pooled.shape else -1)
        # Pooled by the model itself; normalising a normalised vector changes nothing.
        left = () if pooled.name in (*PROJECTED, POOLER) else _left_behind(source, options)
        return _task(pooled.name, pooled.shape, None, (), normalise, signature.opset, prompt, keep, left=left)
    tokens = need_tokens(source, TOKENS)
    if pooling is None:
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"no file says how to pool the token vectors of output '{tokens.name}'",
            where=str(source.path),
            remedy=f"give --pooling {'|'.join(heads_pooling.POOLINGS)} "
            "(see the model card; mean and cls are usual), "
            f"or take {MODULES}, {POOLING} and {prompts.FILE}, which exporters leave behind, from the "
            "original with --from-model FOLDER",
        )
    _check_widths(tokens, layers)
    skip = prompts.tokens(source, prompt.text) if prompt.text and not _pools_prompt(source) else 0
    full = layers[-1].weight.shape[1] if layers else tokens.dims[-1]
    keep = _keep(source, options, full)
    left = _left_behind(source, options)
    if tokens.name not in TOKENS:
        left = (*left, f"the token vectors are output '{tokens.name}'")
    return _task(
        tokens.name, tokens.shape, pooling, layers, normalise, signature.opset, prompt, keep, skip, left
    )


def _left_behind(source: Source, options: BuildOptions) -> tuple[str, ...]:
    """A note on the files of sentence-transformers that are not there; exporters do not write them."""
    missing = [] if modules(source) else [f"{MODULES} with {POOLING}"]
    if not source.settings(prompts.FILE) and options.prompt is None:
        missing.append(prompts.FILE)
    if not missing:
        return ()
    unknown = "pooling, normalising and prompts" if len(missing) == 2 else "prompts"
    unknown = unknown if missing[-1] == prompts.FILE else "pooling and normalising"
    named = " and ".join(missing)
    if source.original:
        return (f"not found in {source.original}, either: {named}, which say {unknown}",)
    return (
        f"not found beside the model: {named}, which say {unknown} (exporters leave them behind; "
        "--from-model FOLDER takes them from the original)",
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


def _pools_prompt(source: Source) -> bool:
    """``include_prompt`` of the Pooling module."""
    folders = [
        module["folder"] / str(module.get("path", ""))
        for module in modules(source)
        if _kind(module) == "Pooling"
    ]
    return all(tokenizer.settings(folder, "config.json").get("include_prompt", True) for folder in folders)


def _described(source: Source, *, in_graph: bool) -> tuple[str | None, bool, tuple[Dense, ...]]:
    """(pooling, normalise, dense layers) from the sentence-transformers files; pooling is None without them.

    If pooling is in the graph, so are the other modules, and only normalising again is safe.
    """
    pooling, normalise = None, False
    layers: list[Dense] = []
    listed = modules(source)
    kinds = [_kind(module) for module in listed]
    if in_graph:
        return None, kinds[-1:] == ["Normalize"], ()
    _check_order(kinds, listed)
    for module in listed:
        kind = _kind(module)
        folder = module["folder"] / str(module.get("path", ""))
        if kind == "Pooling":
            file = folder / "config.json"  # not that of the folder above
            pooling = _pooling(tokenizer.settings(folder, file.name) if file.is_file() else {}, str(file))
        elif kind == "Normalize":
            normalise = True
        elif kind == "Dense":
            layers.append(dense.read(folder))
        elif kind != "Transformer":
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"the sentence-transformers module '{kind}' is not supported yet",
                where=str(module["folder"] / "modules.json"),
                remedy="export with that module inside the graph (optimum's sentence-transformers export)",
            )
    return pooling, normalise, tuple(layers)


def _kind(module: Mapping[str, Any]) -> str:
    """``Pooling`` of sentence_transformers.models.Pooling, or of its module in later releases."""
    return str(module.get("type", "")).rsplit(".", 1)[-1]


def _check_order(kinds: Sequence[str], listed: Sequence[Mapping[str, Any]]) -> None:
    """``TrbError`` if the modules run in another order than that of the head."""
    order = [kind for kind in kinds if kind in ORDER]
    if order == sorted(order, key=ORDER.index) and order.count("Pooling") <= 1:
        return
    raise TrbError(
        Code.UNSUPPORTED_MODEL,
        f"the modules run as {', '.join(order)}; only {', '.join(ORDER)} is supported, in this order",
        where=str(listed[0]["folder"] / "modules.json"),
        remedy="export with these modules inside the graph (optimum's sentence-transformers export)",
    )


def _pooling(config: Any, where: str) -> str:
    if not config:
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"{MODULES} names it, and it is not there: no file says how to pool",
            where=where,
            remedy=f"take it from the original with --from-model FOLDER, or give --pooling "
            f"{'|'.join(heads_pooling.POOLINGS)}",
        )
    modes = [pooling for flag, pooling in FLAGS.items() if config.get(flag)]
    if not modes and isinstance(config.get("pooling_mode"), str):
        modes = [config["pooling_mode"]]
    if len(modes) != 1 or modes[0] not in heads_pooling.POOLINGS:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"pooling by {' and '.join(modes) or 'no mode'} is not supported",
            where=where,
            remedy=f"give --pooling {'|'.join(heads_pooling.POOLINGS)}",
        )
    return str(modes[0])


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
