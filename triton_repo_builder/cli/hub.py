"""A model that ``--model`` names elsewhere: fetched, with a progress bar, before a command reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triton_repo_builder.cli import console

if TYPE_CHECKING:
    from triton_repo_builder.model.read.options import BuildOptions


def fetched(options: BuildOptions) -> tuple[BuildOptions, tuple[str, ...]]:
    """Options whose model is on this disk, the same ones for a path, and notes. Raises ``TrbError``."""
    from triton_repo_builder.model.read import hub_name
    from triton_repo_builder.model.read.options import usage

    if ":" in str(options.model) and not hub_name.is_scheme(options.model):
        from triton_repo_builder.ship.origins import address, fetch

        if place := address.of(options.model):
            with console.progress("bytes") as step:
                return fetch.fetched(options, place, step)
    name = hub_name.of(options.model)
    if name is None and hub_name.is_scheme(options.model):
        remedy = "write hf://ORG/NAME, hf://ORG/NAME@REVISION or hf://ORG/NAME/onnx/model.onnx"
        raise usage("model", f"'{options.model}' is not the name of a model on the Hub", remedy)
    if name is None:
        note = hub_name.note(options.model)
        return options, (note,) if note else ()
    from triton_repo_builder.model.read import hub

    with console.progress("bytes") as step:
        return hub.fetched(options, name, step)
