"""``trb convert``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, declare, option
from triton_repo_builder.base.option_values import Choice, FilePath, Switch
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import Place
from triton_repo_builder.model.read import foreign

if TYPE_CHECKING:
    from triton_repo_builder.model.read.options import BuildOptions
    from triton_repo_builder.produce.convert.convert import Converted


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """How weights are converted."""

    task: str | None = option(
        None, Choice(foreign.EXPORTED), Topic.MODEL, "What the model is for.", default="from config.json"
    )
    python: Path | None = option(
        None,
        FilePath(),
        Topic.MODEL,
        "A Python that has torch and optimum-onnx; also TRB_CONVERT_PYTHON.",
        default="an environment that trb makes once",
    )
    output: Path = field(
        metadata=declare(FilePath(), Topic.OUTPUT, "Folder to write.", also=("-o",)),
    )
    force: bool = option(False, Switch(), Topic.OUTPUT, "Replace an earlier conversion.")
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the result as JSON.", flag="--json")


@click.command("convert", cls=declared.TopicCommand)
@click.argument("model", type=Place())
@declared.options(options=ConvertOptions)
def command(model: Path, options: ConvertOptions) -> int:
    """Convert PyTorch weights to ONNX, with PyTorch's own answers as proof.

    MODEL is a folder that save_pretrained wrote, or a model on the Hub: ORG/NAME, hf://ORG/NAME@REVISION.
    Only safetensors are read, and no code of the model's own is run. torch is not needed here: it runs in an
    environment that trb makes once and keeps. The answers that PyTorch gives with the original weights go
    into the folder; trb build takes them as golden cases, so trb smoke compares a server with PyTorch.

    \b
    Examples:
      trb convert sentence-transformers/all-MiniLM-L6-v2 -o minilm
      trb convert my-finetuned-bert -o bert-onnx --task text-classification
      trb build --model minilm && trb serve
      trb convert my-finetuned-bert -o bert-onnx --python ~/venvs/torch/bin/python
    """
    import json

    converted = run(model, options.output, options)
    if options.as_json:
        console.echo(json.dumps(converted.as_json(), indent=1))
    else:
        _print(converted)
        console.echo(f"wrote {converted.output}; next: trb build --model {converted.output}")
    return 0


def run(model: Path, output: Path, options: ConvertOptions) -> Converted:
    """Fetch what a name on the Hub stands for, and convert it. Raises ``TrbError``."""
    from triton_repo_builder.cli import hub
    from triton_repo_builder.produce.convert import output as outputs
    from triton_repo_builder.produce.convert.convert import convert

    outputs.check(output, force=options.force)
    folder, origin, notes = hub.fetched_weights(model)
    for note in notes:
        console.note(note)
    with console.status() as progress:
        return convert(
            folder,
            output,
            task=options.task,
            python=options.python,
            hub=origin,
            force=options.force,
            progress=progress,
            tell=console.line,
        )


def _print(converted: Converted) -> None:
    facts = converted.conversion
    tools = ", ".join(f"{name} {version}" for name, version in sorted(facts.tools.items()))
    console.echo(f"{facts.task}, by {facts.converter} ({tools}): {converted.bytes / 1e6:.1f} MB")
    console.echo(
        f"PyTorch answered {converted.runs} golden inputs; the graph's answers differ by "
        f"{converted.difference:.1e} at most"
    )
    for note in converted.notes:
        console.note(note)


def for_build(options: BuildOptions) -> tuple[BuildOptions, tuple[str, ...]]:
    """``trb build --convert``: options whose model is converted, unless it has an ONNX file, and notes.

    The folder is kept in the user's cache, by the digests of the weights and of what converts them.
    """
    from dataclasses import replace

    from triton_repo_builder.base import transfer
    from triton_repo_builder.cli import hub
    from triton_repo_builder.model.read import source
    from triton_repo_builder.produce.convert import cache

    if hub.has_onnx(options.model):
        return options, ("--convert: it has an ONNX file, which is built as it is",)
    folder, origin, notes = hub.fetched_weights(options.model)
    name = options.name or source.clean_name(
        (origin.model if origin else folder.resolve().name).split("/")[-1]
    )
    with console.status() as progress:
        converted = cache.converted(
            folder,
            transfer.cache_folder() / "converted",
            hub=origin,
            progress=progress,
            tell=console.line,
        )
    built = replace(options, model=converted, name=name)
    return built, (*notes, f"converted from PyTorch weights: {converted}")
