"""Any other model: plain tensors in and out, as in the graph."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks.task import Arrays, Kind, TaskPlan
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.model.read.source import Source

NAME = "tensor"
KIND = Kind.TENSOR
OPTIONS: tuple[str, ...] = ()
ARCHITECTURES: tuple[str, ...] = ()


def fits(source: Source) -> bool:
    """Every model fits."""
    return True


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """No head. ``outputs`` is empty: they are the graph's own (``tensors`` below)."""
    return TaskPlan(name=NAME, head=None, outputs=(), reference=_unchanged)


def _unchanged(outputs: Arrays, mask: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
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


WITHOUT_ZIPMAP = "skl2onnx: target_opset=17, options={'zipmap': False}; onnxmltools: zipmap=False"
"""Exporters that can leave it out; CatBoost's cannot."""
TAKE_OUT = (
    "import sys, onnx; m = onnx.load(sys.argv[1]); g = m.graph; "
    'z = next(n for n in g.node if n.op_type == "ZipMap"); '
    "k = sum(len(a.ints) + len(a.strings) for a in z.attribute); "
    "o = next(o for o in g.output if o.name == z.output[0]); "
    'o.CopyFrom(onnx.helper.make_tensor_value_info(z.input[0], 1, ["N", k])); '
    "g.node.remove(z); onnx.save(m, sys.argv[2])"
)
"""Makes the scores that a ZipMap turns into dictionaries an output, one column for each class."""


def _plain_outputs(source: Source) -> str:
    """The remedy for an output that is not a tensor."""
    if "ZipMap" not in source.signature.operators:
        return "export the model with plain tensor outputs"
    path = source.path
    argv = (sys.executable, "-c", TAKE_OUT, str(path), str(path.with_name(f"{path.stem}_plain.onnx")))
    line = f"take the ZipMap out: {shlex.join(argv)}"
    catboost = source.signature.producer.startswith("CatBoost")
    return line if catboost else f"export without it ({WITHOUT_ZIPMAP}), or {line}"


def check_types(source: Source) -> None:
    """``TrbError`` UNSUPPORTED_TYPE for an input or output that Triton cannot carry."""
    for role, specs in (("input", source.signature.inputs), ("output", source.signature.outputs)):
        for spec in specs:
            if spec.kind != "tensor":
                raise TrbError(
                    Code.UNSUPPORTED_TYPE,
                    f"{role} '{spec.name}' is a {spec.kind}; Triton carries only tensors",
                    where=str(source.path),
                    remedy=_plain_outputs(source)
                    if role == "output"
                    else "export the model with plain tensor inputs",
                )
            if not spec.dtype.servable:
                raise TrbError(
                    Code.UNSUPPORTED_TYPE,
                    f"{role} '{spec.name}' has type {spec.dtype.name}, "
                    "which Triton's onnxruntime backend cannot carry",
                    where=str(source.path),
                    remedy=f"export with a Cast of '{spec.name}' to float16 or float32 at the graph's edge",
                )
