"""Sparse embedding (SPLADE): which tokens of the vocabulary a text stands for, and how much, in the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks import fill_mask
from triton_repo_builder.endpoint.tasks.support import head_output, modality, prompts, saved_modules
from triton_repo_builder.endpoint.tasks.task import Arrays, Kind, TaskPlan
from triton_repo_builder.model.graph.heads import sparse
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read import tokenizer
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.source import Source

NAME = "sparse-embedding"
KIND = Kind.TEXT
OPTIONS = ("prompt",)
ARCHITECTURES: tuple[str, ...] = ()
MODULE = "SpladePooling"
"""Module of sentence-transformers; its config.json has pooling_strategy and activation_function."""
ACTIVATIONS = {"relu": False, "log1p_relu": True}


def fits(source: Source) -> bool:
    """A sentence-transformers folder of a sparse encoder; a masked language model alone may be anything."""
    return _module(source) is not None


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """Pooling and activation from the SpladePooling module, else as in the SPLADE papers: max, once."""
    logits = head_output.need_tokens(source, fill_mask.NAME)  # the export that has them
    module = _module(source)
    usual = "pooled by max, as the SPLADE papers do"
    pooling, activation = "max", "relu"
    if module is not None:
        folder = module["folder"] / str(module.get("path", ""))
        config = tokenizer.settings(folder, "config.json")
        pooling = str(config.get("pooling_strategy", pooling))
        activation = str(config.get("activation_function", activation))
        if pooling not in sparse.POOLINGS or activation not in ACTIVATIONS:
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"{MODULE} with {pooling} and {activation} is not supported",
                where=str(folder / "config.json"),
                remedy=f"pooling_strategy {' or '.join(sparse.POOLINGS)}, activation_function "
                f"{' or '.join(ACTIVATIONS)}",
            )
    modality.check(source)
    prompt = prompts.read(source, options)
    width = logits.dims[2] if logits.dims[2] > 0 else None
    twice = ACTIVATIONS[activation]
    return TaskPlan(
        name=NAME,
        head=Head(
            text=sparse.head(pooling=pooling, twice=twice, width=width, opset=source.signature.opset),
            bind={"logits": logits.name, "attention_mask": "attention_mask"},
        ),
        outputs=(
            TensorPlan(name="indices", data_type="TYPE_INT32", dims=(-1,)),
            TensorPlan(name="values", data_type="TYPE_FP32", dims=(-1,)),
        ),
        reference=_reference(logits.name, pooling, twice),
        encoding=prompt.encoding,
        encode=prompt.encode if prompt.text else None,
        facts=(("pooling", pooling), ("activation", activation), *prompt.facts),
        notes=(*(() if module else (f"no {MODULE} module found: {usual}",)), *prompt.notes),
        sparse=(("values", "indices"),),
        pad_values=(("indices", -1), ("values", 0)),
    )


def _module(source: Source) -> dict[str, Any] | None:
    listed = saved_modules.modules(source)
    return next((entry for entry in listed if saved_modules.kind(entry) == MODULE), None)


def _reference(logits: str, pooling: str, twice: bool) -> Any:
    def reference(outputs: Arrays, mask: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        rows = [
            _weights(row[attended.astype(bool)].astype(np.float64), pooling, twice)
            for row, attended in zip(outputs[logits], mask, strict=True)
        ]
        places = [np.flatnonzero(row) for row in rows]
        most = max(1, *map(len, places))
        indices = np.full((len(rows), most), -1, np.int32)
        values = np.zeros((len(rows), most), np.float32)
        for number, place in enumerate(places):
            indices[number, : len(place)] = place
            values[number, : len(place)] = rows[number][place]
        return {"indices": indices, "values": values}

    return reference


def _weights(logits: npt.NDArray[Any], pooling: str, twice: bool) -> npt.NDArray[Any]:
    """One row: logits [tokens, vocabulary] → [vocabulary], written as one reads it in a paper."""
    logged = np.log1p(np.maximum(logits, 0))
    if twice:
        logged = np.log1p(logged)
    if not len(logged):
        return np.zeros(logits.shape[1])
    # Numbers that float32 cannot tell from 0 are 0 in the served answer, too.
    pooled = logged.max(axis=0) if pooling == "max" else logged.sum(axis=0)
    return np.asarray(pooled.astype(np.float32))
