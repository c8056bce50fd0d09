"""Any other model: plain tensors in and out, as in the graph."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.plan.model import TensorPlan
from triton_repo_builder.read.options import BuildOptions
from triton_repo_builder.read.signature import TensorSpec
from triton_repo_builder.read.source import Source
from triton_repo_builder.tasks.task import Arrays, Kind, TaskPlan

NAME = "tensor"
KIND = Kind.TENSOR
OPTIONS: tuple[str, ...] = ()
ARCHITECTURES: tuple[str, ...] = ()


def fits(source: Source) -> bool:
    """Every model fits."""
    return True


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """No head. ``outputs`` is empty: they are the graph's own (``tensors`` below)."""
    return TaskPlan(name=NAME, head=None, outputs=(), reference=_same)


def _same(outputs: Arrays, mask: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    return dict(outputs)


def tensors(specs: tuple[TensorSpec, ...], *, batching: bool) -> tuple[TensorPlan, ...]:
    """Inputs or outputs of a graph as config.pbtxt states them.

    With batching the first axis is left out; a tensor of rank 1 then has nothing left, and is written
    as ``dims: [1] reshape { shape: [] }``. Without, a scalar or a tensor of unknown shape is ``[1]``.
    """
    plans = []
    for spec in specs:
        dims = spec.dims[1:] if batching else spec.dims
        if dims:
            plans.append(TensorPlan(name=spec.name, data_type=spec.dtype.config, dims=dims))
        else:
            reshape = () if batching else None
            plans.append(TensorPlan(name=spec.name, data_type=spec.dtype.config, dims=(1,), reshape=reshape))
    return tuple(plans)


ZIPMAP = "export without it (skl2onnx: options={'zipmap': False}; onnxmltools for LightGBM: zipmap=False)"


def check_types(source: Source) -> None:
    """``TrbError`` UNSUPPORTED_TYPE for an input or output that Triton cannot carry."""
    for role, specs in (("input", source.signature.inputs), ("output", source.signature.outputs)):
        for spec in specs:
            if spec.kind != "tensor":
                raise TrbError(
                    Code.UNSUPPORTED_TYPE,
                    f"{role} '{spec.name}' is a {spec.kind}; Triton carries only tensors",
                    where=str(source.path),
                    remedy=ZIPMAP if role == "output" else "export the model with plain tensor inputs",
                )
            if not spec.dtype.servable:
                raise TrbError(
                    Code.UNSUPPORTED_TYPE,
                    f"{role} '{spec.name}' has type {spec.dtype.name}, "
                    "which Triton's onnxruntime backend cannot carry",
                    where=str(source.path),
                    remedy=f"export with a Cast of '{spec.name}' to float16 or float32 at the graph's edge",
                )
