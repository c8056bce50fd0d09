"""Ensembles against the models of their steps: names, versions, types, shapes, batch sizes, cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from triton_repo_builder.check.context import Site
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.check.line_numbers import Key
from triton_repo_builder.check.rules.interfaces import Interface, Tensor, interface
from triton_repo_builder.repository import Model, Repository

Origin = tuple[str, Tensor, int]
"""Who says what of a tensor: model, tensor, and that model's max_batch_size."""


def check(site: Site) -> Iterator[Finding]:
    """Everything that the server compares once the steps are loaded."""
    if not site.ensemble:
        return
    steps = site.config.get("ensemble_scheduling", {}).get("step", [])
    tensors: dict[str, Origin] = {}
    for role in ("input", "output"):
        for item in site.messages(role):
            tensor = Tensor(data_type=item.get("data_type", ""), dims=tuple(item.get("dims", [])))
            tensors.setdefault(str(item.get("name", "")), (site.name, tensor, site.rows))
    for index, step in enumerate(steps):
        name = str(step.get("model_name", ""))
        model = site.survey.repository.model(name)
        if name and (model is None or (model.text is None and not model.versions)):
            message = f"ensemble {site.name} contains models that are not available or ambiguous: {name}"
            yield site.finding("ensemble-step-unknown", message, *_path(index), "model_name")
        elif model is not None and model.error is None:
            yield from _step(site, index, step, site.survey.site(model), tensors)
    yield from _cycle(site)


def _path(index: int) -> tuple[str | int, ...]:
    return ("ensemble_scheduling", "step", index)


def _step(
    site: Site, index: int, step: Mapping[str, Any], inner: Site, tensors: dict[str, Origin]
) -> Iterator[Finding]:
    version = int(step.get("model_version", 0))
    if version != -1 and version not in inner.selected:
        message = (
            f"ensemble '{site.name}' depends on '{inner.name}' whose required version {version} is not "
            "loaded."
        )
        yield site.finding("ensemble-step-version", message, *_path(index), "model_version")
    known = interface(inner)
    if known is None:
        return
    if 0 < known.rows < site.rows:
        message = (
            f"ensemble {site.name} allows maximum batch size {site.rows}, but it contains model {inner.name} "
            f"which only allows maximum batch size to be {known.rows}"
        )
        yield site.finding("ensemble-batch-size", message, "max_batch_size")
    yield from _keys(site, index, step, inner.name, known)
    for field, side in (("input_map", known.inputs), ("output_map", known.outputs)):
        for key, value in step.get(field, {}).items():
            if key in side:
                origin = (inner.name, side[key], known.rows)
                first = tensors.setdefault(value, origin)
                yield from _compare(site, (*_path(index), field, Key(key)), value, first, origin)


def _keys(site: Site, index: int, step: Mapping[str, Any], inner: str, known: Interface) -> Iterator[Finding]:
    for field, side, words in (
        ("input_map", known.inputs, "is mapping to non-existing input"),
        ("output_map", known.outputs, "is mapped from non-existing output"),
    ):
        for key, value in step.get(field, {}).items():
            if key not in side:
                message = f"in ensemble {site.name}, ensemble tensor {value} {words} {key} in model {inner}"
                remedy = f"the key is the step's own tensor name, one of: {', '.join(sorted(side))}"
                yield site.finding("ensemble-key", message, *_path(index), field, Key(key), remedy=remedy)
    if not set(step.get("input_map", {})) <= set(known.inputs):
        return  # An input that is not mapped follows from a misspelt key.
    for name, tensor in known.inputs.items():
        if name not in step.get("input_map", {}) and not tensor.optional:
            message = (
                f"in ensemble {site.name}, input {name} in model {inner} is not mapped to any ensemble "
                "tensors"
            )
            yield site.finding("ensemble-input-unmapped", message, *_path(index), "input_map")


def _compare(
    site: Site, path: Sequence[str | int], name: str, first: Origin, second: Origin
) -> Iterator[Finding]:
    (one, left, _), (other, right, _) = first, second
    start = f"in ensemble {site.name}, ensemble tensor {name}: inconsistent"
    if left.data_type != right.data_type:
        message = (
            f"{start} data type: {left.data_type} is inferred from model {one} while {right.data_type} is "
            f"inferred from model {other}"
        )
        yield site.finding("ensemble-type", message, *path)
    elif not _same(left.dims, right.dims) and not _same(_full(first), _full(second)):
        message = (
            f"{start} shape: {_list(_full(first))} is inferred from model {one} while "
            f"{_list(_full(second))} is "
            f"inferred from model {other}"
        )
        yield site.finding("ensemble-shape", message, *path)


def _full(origin: Origin) -> tuple[int, ...]:
    _, tensor, rows = origin
    return (-1, *tensor.dims) if rows > 0 else tensor.dims


def _same(left: Sequence[int], right: Sequence[int]) -> bool:
    """Equal where both are fixed."""
    return len(left) == len(right) and all(-1 in (a, b) or a == b for a, b in zip(left, right, strict=True))


def _list(dims: Sequence[int]) -> str:
    return f"[{','.join(map(str, dims))}]"


def _cycle(site: Site) -> Iterator[Finding]:
    way = _way_back(site.survey.repository, site.model, site.name, set())
    if way:
        message = f"circular dependency between ensembles: {site.name} -> ... -> {way} -> {site.name}"
        yield site.finding("ensemble-cycle", message, "ensemble_scheduling")


def _way_back(repository: Repository, model: Model, start: str, seen: set[str]) -> str:
    """The model on a way through the steps whose next step is the start again; "" without such a way."""
    seen.add(model.name)
    for name in model.steps:
        if name == start:
            return model.name
        inner = repository.model(name)
        if inner is not None and name not in seen and (found := _way_back(repository, inner, start, seen)):
            return found
    return ""
