"""A model that ``--model`` names elsewhere: fetched, with a progress bar, before a command reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triton_repo_builder.cli import console

if TYPE_CHECKING:
    from pathlib import Path

    from triton_repo_builder.model.read.hub_name import HubName
    from triton_repo_builder.model.read.options import BuildOptions
    from triton_repo_builder.repository.manifest import HubModel


def fetched(options: BuildOptions) -> tuple[BuildOptions, tuple[str, ...]]:
    """Options whose model is on this disk, the same ones for a path, and notes. Raises ``TrbError``."""
    from triton_repo_builder.model.read import hub_name

    if ":" in str(options.model) and not hub_name.is_scheme(options.model):
        from triton_repo_builder.ship.origins import address, fetch

        if place := address.of(options.model):
            with console.progress("bytes") as step:
                return fetch.fetched(options, place, step)
    name = _name(options.model)
    if name is None:
        note = hub_name.note(options.model)
        return options, (note,) if note else ()
    from triton_repo_builder.model.read import hub

    with console.progress("bytes") as step:
        return hub.fetched(options, name, step)


def fetched_weights(model: Path) -> tuple[Path, HubModel | None, tuple[str, ...]]:
    """The folder with a model's weights, its place on the Hub, if it is of there, and notes.

    Raises ``TrbError``.
    """
    from triton_repo_builder.model.read import hub_name
    from triton_repo_builder.model.read.options import usage

    name = _name(model)
    if name is None:
        note = hub_name.note(model)
        return model, None, (note,) if note else ()
    if name.file:
        remedy = f"leave it out: hf://{name.model}"
        raise usage("model", f"'{name.file}' is an ONNX file, which needs no conversion", remedy)
    from triton_repo_builder.model.read import hub

    with console.progress("bytes") as step:
        return hub.fetched_weights(name, step)


def has_onnx(model: Path) -> bool:
    """Whether a path, or a model on the Hub, has an ONNX file. Raises ``TrbError``."""
    from triton_repo_builder.model.read.hub_name import ONNX

    name = _name(model)
    if name is None:
        return not model.is_dir() or any(model.rglob(f"*{ONNX}"))
    from triton_repo_builder.model.read import hub

    return bool(name.file) or hub.has_onnx(name)


def _name(model: Path) -> HubName | None:
    """The name that a path stands for. Raises ``TrbError`` USAGE."""
    from triton_repo_builder.model.read import hub_name
    from triton_repo_builder.model.read.options import usage

    name = hub_name.of(model)
    if name is None and hub_name.is_scheme(model):
        remedy = "write hf://ORG/NAME, hf://ORG/NAME@REVISION or hf://ORG/NAME/onnx/model.onnx"
        raise usage("model", f"'{model}' is not the name of a model on the Hub", remedy)
    return name
