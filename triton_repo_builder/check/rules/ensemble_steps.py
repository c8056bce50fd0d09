"""Ensembles against the models of their steps: names, versions, types, shapes, batch sizes, cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from triton_repo_builder.base.text import some
from triton_repo_builder.check.context import ModelContext
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.model.read.signature import ModelSignature, TensorSpec
from triton_repo_builder.repository.config import TensorConfig
from triton_repo_builder.repository.pbtxt_document import Key

Origin = tuple[str, TensorConfig, int]
"""A tensor as one model states it: model, tensor, and that model's max_batch_size."""


@dataclass(frozen=True, kw_only=True)
class Interface:
    """Inputs and outputs of a model: its config.pbtxt, completed from the graph as the server does."""

    inputs: Mapping[str, TensorConfig]
    outputs: Mapping[str, TensorConfig]
    max_batch_size: int
    open: bool = False
    """Whether the model may add tensors, and a batch size, once it is loaded."""


def check(context: ModelContext) -> Iterator[Finding]:
    """Comparisons that the server makes after it loads the steps."""
    if not context.ensemble:
        return
    steps = context.messages("ensemble_scheduling", "step")
    tensors: dict[str, Origin] = {}
    for role in ("input", "output"):
        for item, tensor in zip(context.messages(role), getattr(context.config, f"{role}s"), strict=True):
            shape = tuple(item["reshape"].get("shape", [])) if "reshape" in item else tensor.dims
            stated = replace(tensor, dims=shape)
            tensors.setdefault(tensor.name, (context.name, stated, context.max_batch_size))
    for index, step in enumerate(steps):
        name = str(step.get("model_name", ""))
        model = context.repo.repository.model(name)
        if name and (model is None or (model.text is None and not model.versions)):
            message = f"ensemble {context.name} contains models that are not available or ambiguous: {name}"
            yield context.finding("ensemble-step-unknown", message, *_path(index), "model_name")
        elif model is not None and model.error is None:
            yield from _step(context, index, step, context.repo.of(model), tensors)
    yield from _cycle(context)


def _path(index: int) -> tuple[str | int, ...]:
    return ("ensemble_scheduling", "step", index)


def _step(
    context: ModelContext,
    index: int,
    step: Mapping[str, Any],
    inner: ModelContext,
    tensors: dict[str, Origin],
) -> Iterator[Finding]:
    version = int(step.get("model_version", 0))
    if version != -1 and version not in inner.selected:
        message = (
            f"ensemble '{context.name}' depends on '{inner.name}' whose required version {version} is not "
            "loaded."
        )
        remedy = "" if inner.selected else f"give '{inner.name}' a version that its version_policy selects"
        if inner.selected and version:
            remedy = f"name one that is: {some([*map(str, inner.selected)])}; or write model_version: -1"
        yield context.finding("ensemble-step-version", message, *_path(index), "model_version", remedy=remedy)
    sides = interface(inner)
    if sides is None:
        return
    if 0 < sides.max_batch_size < context.max_batch_size:
        message = (
            f"ensemble {context.name} allows maximum batch size {context.max_batch_size}, but it contains "
            f"model {inner.name} which only allows maximum batch size to be {sides.max_batch_size}"
        )
        yield context.finding("ensemble-batch-size", message, "max_batch_size")
    yield from _keys(context, index, step, inner.name, sides)
    for field, side in (("input_map", sides.inputs), ("output_map", sides.outputs)):
        for key, value in step.get(field, {}).items():
            if key in side:
                origin = (inner.name, side[key], sides.max_batch_size)
                first = tensors.setdefault(value, origin)
                path = (*_path(index), field, Key(key))
                yield from _compare(context, path, value, first, origin)
                if field == "input_map" and not sides.open:
                    yield from _batch_axis(context, path, value, first, origin)


def _keys(
    context: ModelContext, index: int, step: Mapping[str, Any], inner: str, interface: Interface
) -> Iterator[Finding]:
    for field, side, words in (
        ("input_map", interface.inputs, "is mapping to non-existing input"),
        ("output_map", interface.outputs, "is mapped from non-existing output"),
    ):
        for key, value in step.get(field, {}).items():
            if key not in side and not interface.open:
                message = (
                    f"in ensemble {context.name}, ensemble tensor {value} {words} {key} in model {inner}"
                )
                remedy = f"the key is the step's own tensor name, one of: {some(sorted(side))}"
                if not side:
                    remedy = f"declare the inputs and outputs of '{inner}' in its config.pbtxt"
                yield context.finding("ensemble-key", message, *_path(index), field, Key(key), remedy=remedy)
    if not set(step.get("input_map", {})) <= set(interface.inputs):
        return  # An input that is not mapped follows from a misspelt key.
    for name, tensor in interface.inputs.items():
        if name not in step.get("input_map", {}) and not tensor.optional:
            message = (
                f"in ensemble {context.name}, input {name} in model {inner} is not mapped to any ensemble "
                "tensors"
            )
            yield context.finding("ensemble-input-unmapped", message, *_path(index), "input_map")


def _compare(
    context: ModelContext, path: Sequence[str | int], name: str, first: Origin, second: Origin
) -> Iterator[Finding]:
    (model, left, _), (other, right, _) = first, second
    start = f"in ensemble {context.name}, ensemble tensor {name}: inconsistent"
    if left.data_type != right.data_type:
        message = (
            f"{start} data type: {left.data_type} is inferred from model {model} while {right.data_type} is "
            f"inferred from model {other}"
        )
        yield context.finding("ensemble-type", message, *path)
    elif not _same(left.dims, right.dims) and not _same(_full(first), _full(second)):
        message = (
            f"{start} shape: {_list(_full(first))} is inferred from model {model} while "
            f"{_list(_full(second))} is "
            f"inferred from model {other}"
        )
        yield context.finding("ensemble-shape", message, *path)


def _batch_axis(
    context: ModelContext, path: Sequence[str | int], name: str, first: Origin, second: Origin
) -> Iterator[Finding]:
    """A step without a batch axis: the server removes it for one row, and refuses two rows."""
    (model, _, rows), (other, tensor, other_rows) = first, second
    if context.max_batch_size > 1 and rows > 0 and other_rows == 0 and len(_full(first)) > len(tensor.dims):
        message = (
            f"in ensemble {context.name}, ensemble tensor {name} has a batch axis in model {model} and "
            f"none in model {other}: a request of two rows fails with 'unexpected shape for input'"
        )
        yield context.finding("ensemble-batch-axis", message, *path)


def _full(origin: Origin) -> tuple[int, ...]:
    _, tensor, rows = origin
    return (-1, *tensor.dims) if rows > 0 else tensor.dims


def _same(left: Sequence[int], right: Sequence[int]) -> bool:
    """Whether two shapes agree; -1 agrees with any size."""
    return len(left) == len(right) and all(-1 in (a, b) or a == b for a, b in zip(left, right, strict=True))


def _list(dims: Sequence[int]) -> str:
    return f"[{','.join(map(str, dims))}]"


def _cycle(context: ModelContext) -> Iterator[Finding]:
    way = context.repo.graph_of_steps.last_of_cycle(context.name)
    if way:
        message = f"circular dependency between ensembles: {context.name} -> ... -> {way} -> {context.name}"
        yield context.finding("ensemble-cycle", message, "ensemble_scheduling")


def interface(context: ModelContext) -> Interface | None:
    """None if it cannot be known without running the model, or if the config does not parse."""
    inputs, outputs = context.config.inputs, context.config.outputs
    if context.backend != "onnxruntime" or (inputs and outputs):
        if context.relocated or (context.completes and not (inputs and outputs)):
            return None
        opened = context.completes and not context.ensemble
        return Interface(
            inputs=_by_name(inputs), outputs=_by_name(outputs), max_batch_size=context.rows or 0, open=opened
        )
    file = context.file(context.selected[-1]) if context.selected else None
    graph = context.repo.graph(file) if file is not None and file.is_file() else None
    if not isinstance(graph, ModelSignature):
        return None
    size = context.rows or 0
    return Interface(
        inputs=_by_name(inputs or _of_graph(graph.inputs, size)),
        outputs=_by_name(outputs or _of_graph(graph.outputs, size)),
        max_batch_size=size,
    )


def _by_name(tensors: Sequence[TensorConfig]) -> dict[str, TensorConfig]:
    return {tensor.name: tensor for tensor in tensors}


def _of_graph(specs: Sequence[TensorSpec], max_batch_size: int) -> tuple[TensorConfig, ...]:
    return tuple(
        TensorConfig(
            name=spec.name,
            data_type=spec.dtype.config,
            dims=(spec.dims[1:] or (1,)) if max_batch_size else spec.dims,
        )
        for spec in specs
    )
