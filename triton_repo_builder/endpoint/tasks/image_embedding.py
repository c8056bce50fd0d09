"""Image embedding: a vision model's own pooled vector, or its tokens or places pooled in the graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks.support import head_output, saved_modules, vision
from triton_repo_builder.endpoint.tasks.support.reference import unit_length
from triton_repo_builder.endpoint.tasks.task import Arrays, Kind, TaskPlan
from triton_repo_builder.model.graph.heads import image
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read import timm_config
from triton_repo_builder.model.read.options import BuildOptions, usage
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.model.read.source import Source

NAME = "image-embedding"
KIND = Kind.IMAGE
OPTIONS = ("pooling", "normalize")
ARCHITECTURES: tuple[str, ...] = ()
POOLED = ("image_embeds", "pooler_output", "embedding", "embeddings", "image_embedding")
MEANS = ("swin", "swinv2")
"""Whose pooler is the mean of the tokens alone; optimum leaves it out."""
HIDDEN = "last_hidden_state"


def fits(source: Source) -> bool:
    """Images in, and one of the outputs that vision models give their vectors by."""
    named = any(source.signature.output(name) for name in (*POOLED, HIDDEN))
    return vision.images(source) and (named or _features(source) is not None)


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """The model's projected or pooled vector if there is one, else pooling by ``--pooling``."""
    if options.pooling is not None and options.pooling not in image.POOLINGS:
        poolings = ", ".join(image.POOLINGS)
        raise usage("pooling", f"'{options.pooling}' is unknown for images", f"use one of {poolings}")
    spec, pooling = _pooled(source, options)
    rank = len(spec.shape or ())
    normalise = _normalise(source) if options.normalize is None else options.normalize
    width = spec.dims[1 if rank == 4 else -1]
    return TaskPlan(
        name=NAME,
        head=Head(
            text=image.embedding(
                pooling=pooling, rank=rank, normalise=normalise, width=width if width > 0 else None
            ),
            bind={"hidden": spec.name},
            oldest_opset=image.OLDEST_OPSET,
        ),
        outputs=(TensorPlan(name="embedding", data_type="TYPE_FP32", dims=(width,)),),
        reference=_reference(spec.name, pooling, normalise),
        facts=(
            ("pooling", pooling if rank == 3 else f"in the model ({spec.name})"),
            ("normalize", normalise),
        ),
        notes=_notes(spec, options),
    )


def _pooled(source: Source, options: BuildOptions) -> tuple[TensorSpec, str]:
    """The output to embed by, and how it is pooled."""
    signature = source.signature
    hidden = signature.output(HIDDEN)
    tokens = hidden is not None and len(hidden.shape or ()) == 3
    if options.pooling in ("cls", "mean"):
        if hidden is None or not (tokens or options.pooling == "mean"):
            raise TrbError(
                Code.TASK_UNCLEAR,
                f"--pooling {options.pooling} needs an output '{HIDDEN}' of tokens",
                where=str(source.path),
                remedy="leave it out, or export the model without its head",
            )
        return hidden, options.pooling
    named = (spec for name in POOLED if (spec := signature.output(name)))
    pooled = next((spec for spec in named if len(spec.shape or ()) in (2, 4)), None)
    pooled = pooled or _features(source)
    if pooled is not None:
        return pooled, "pooler"
    if hidden is not None and len(hidden.shape or ()) == 4 and options.pooling is None:
        _check_pooler(source)
        return hidden, "mean"  # places of a convolution, which the models themselves pool so
    if tokens and options.pooling is None and str(source.config.get("model_type", "")) in MEANS:
        assert hidden is not None
        return hidden, "mean"
    if hidden is None and not options.pooling:
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"{NAME} needs an output {' or '.join((*POOLED[:2], HIDDEN))}; it has "
            f"{head_output.shown(source)}",
            where=str(source.path),
            remedy="export the model without its head (optimum-cli export onnx --task feature-extraction), "
            "or use --task tensor",
        )
    raise TrbError(
        Code.TASK_UNCLEAR,
        "the model has no pooled output"
        if options.pooling
        else f"no file says how to pool output '{HIDDEN}'",
        where=str(source.path),
        remedy="give --pooling cls or mean (see the model card; cls is usual for ViT)"
        if tokens
        else "use --task tensor to serve it as it is",
    )


def _features(source: Source) -> TensorSpec | None:
    """The vector of timm's models without classes, which their exports call as they like."""
    outputs = source.signature.outputs
    alone = len(outputs) == 1 and len(outputs[0].shape or ()) == 2
    return outputs[0] if alone and timm_config.headless(source.config) else None


def _check_pooler(source: Source) -> None:
    """Refuse to guess if the model's own pooling has weights that the export lacks."""
    kind = str(source.config.get("model_type", ""))
    if "convnext" in kind:
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"a {kind} model pools by a mean and a layer norm of its own, which this export leaves out",
            where=str(source.path),
            remedy="export it with its output 'pooler_output', as trb convert does; or take --pooling mean, "
            "another vector than the model's own",
        )


def _normalise(source: Source) -> bool:
    """Whether sentence-transformers' files ask for it."""
    return any(saved_modules.kind(module) == "Normalize" for module in saved_modules.modules(source))


def _notes(spec: TensorSpec, options: BuildOptions) -> tuple[str, ...]:
    if spec.name != "image_embeds" or options.normalize is not None:
        return ()
    return (
        "image_embeds are served as the model gives them; --normalize makes them of length 1, for cosines",
    )


def _reference(
    output: str, pooling: str, normalise: bool
) -> Callable[[Arrays, npt.NDArray[np.int64]], dict[str, npt.NDArray[np.generic]]]:
    def reference(outputs: Arrays, mask: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.generic]]:
        hidden = outputs[output].astype(np.float64)
        if hidden.ndim == 3:
            rows = hidden[:, 0] if pooling == "cls" else hidden.mean(axis=1)
        else:
            rows = hidden.mean(axis=(2, 3)) if hidden.ndim == 4 else hidden
        if normalise:
            rows = unit_length(rows)
        return {"embedding": rows.astype(np.float32)}

    return reference
