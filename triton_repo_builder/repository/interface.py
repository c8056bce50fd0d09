"""An endpoint as clients see it, from its configuration: config.pbtxt on disk, or the server's answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder import repository
from triton_repo_builder.client import control
from triton_repo_builder.codegen import snippets
from triton_repo_builder.codegen.snippets import Tensor
from triton_repo_builder.dtypes import BY_CONFIG
from triton_repo_builder.errors import Code, TrbError


@dataclass(frozen=True, kw_only=True)
class Interface:
    """Inputs and outputs with the batch axis, and an example of a request."""

    name: str
    inputs: tuple[Tensor, ...]
    """Those that a request may leave out come last."""
    outputs: tuple[Tensor, ...]
    optional: frozenset[str]
    max_batch_size: int
    obstacle: str
    """Why plain JSON over HTTP cannot call it; empty where it can."""
    example: tuple[Mapping[str, Any], ...]
    """name, datatype, shape and data of each needed input; ``data`` may be one value for all elements."""
    file: bytes | None
    """The content of the only input where that is a file such as an image: it cannot travel as JSON."""


def of_server(base: str, name: str, folder: Path) -> Interface:
    """As the server at ``base`` states it; ``folder`` is the model's directory, for its golden cases."""
    return _interface(name, control.model(base, name, "/config"), folder)


def of_repository(path: Path, name: str) -> Interface:
    """As config.pbtxt states it. Raises ``TrbError`` NOT_FOUND, REPOSITORY_UNREADABLE."""
    read = repository.read(path)
    model = read.model(name)
    if model is None:
        listed = ", ".join(model.name for model in read.endpoints[:8])
        raise TrbError(
            Code.NOT_FOUND, f"there is no model '{name}'", where=str(path), remedy=f"it has: {listed}"
        )
    if not model.config.get("input") or not model.config.get("output"):
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            "its config.pbtxt does not state inputs and outputs",
            where=str(model.path),
            remedy="start a server on it and ask that: --url",
        )
    return _interface(name, model.config, model.path)


def _interface(name: str, config: Mapping[str, Any], folder: Path) -> Interface:
    batch = (-1,) if config.get("max_batch_size") else ()

    def tensors(key: str) -> tuple[Tensor, ...]:
        return tuple(
            Tensor(
                name=item["name"],
                datatype=BY_CONFIG[item["data_type"]].wire
                if item["data_type"] in BY_CONFIG
                else str(item["data_type"]).removeprefix("TYPE_"),
                shape=(*batch, *(int(dim) for dim in item.get("dims", ()))),
            )
            for item in config.get(key, ())
        )

    optional = frozenset(item["name"] for item in config.get("input", ()) if item.get("optional"))
    inputs = tuple(sorted(tensors("input"), key=lambda tensor: tensor.name in optional))
    needed = tuple(tensor for tensor in inputs if tensor.name not in optional)
    outputs = tensors("output")
    file = snippets.file(folder, needed)
    example = snippets.example(folder, needed)
    if file is not None:
        example = [{**item, "data": [file]} for item in example]
    return Interface(
        name=name,
        inputs=inputs,
        outputs=outputs,
        optional=optional,
        max_batch_size=int(config.get("max_batch_size", 0)),
        obstacle=snippets.obstacle(config, (*needed, *outputs)),
        example=tuple(example),
        file=file,
    )
