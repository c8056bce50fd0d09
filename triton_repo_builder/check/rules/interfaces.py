"""What a model takes and gives: its config.pbtxt, completed from the graph as the server does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triton_repo_builder.check.context import Site
from triton_repo_builder.read.signature import ModelSignature, TensorSpec


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One input or output as clients see it: without the batch axis where ``rows`` is above 0."""

    data_type: str
    dims: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True, kw_only=True)
class Interface:
    """A model's inputs and outputs by name; ``rows`` is its max_batch_size."""

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    rows: int


def interface(site: Site) -> Interface | None:
    """None where it cannot be known without running the model, or where the config does not parse."""
    inputs, outputs = site.messages("input"), site.messages("output")
    if inputs and outputs:
        return Interface(inputs=_declared(inputs), outputs=_declared(outputs), rows=site.rows)
    file = site.file(site.selected[-1]) if site.selected and site.backend == "onnxruntime" else None
    graph = site.survey.graph(file) if file is not None and file.is_file() else None
    if not isinstance(graph, ModelSignature):
        return None
    rows = site.rows or (4 if graph.batch.possible else 0)
    return Interface(
        inputs=_declared(inputs) if inputs else _graph(graph.inputs, rows),
        outputs=_declared(outputs) if outputs else _graph(graph.outputs, rows),
        rows=rows,
    )


def _declared(items: Any) -> dict[str, Tensor]:
    return {
        str(item.get("name", "")): Tensor(
            data_type=item.get("data_type", "TYPE_INVALID"),
            dims=tuple(item.get("dims", [])),
            optional=bool(item.get("optional")),
        )
        for item in items
    }


def _graph(specs: tuple[TensorSpec, ...], rows: int) -> dict[str, Tensor]:
    return {
        spec.name: Tensor(data_type=spec.dtype.config, dims=(spec.dims[1:] or (1,)) if rows else spec.dims)
        for spec in specs
    }
