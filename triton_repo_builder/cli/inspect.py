"""``trb inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.text import visible
from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import Place

if TYPE_CHECKING:
    from triton_repo_builder.produce.inspect import Inspection
    from triton_repo_builder.repository.interface import Tensor


@click.command(name="inspect", short_help="Show what a model file, or a repository, contains.")
@click.argument("path", type=Place())
@click.option(
    "--tokenizer",
    type=Place(),
    help="tokenizer.json or its folder, if not beside the model.",
)
@click.option("--file", metavar="NAME", help="Which ONNX file, if PATH is a folder with several.")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")
def command(path: Path, tokenizer: Path | None, file: str | None, as_json: bool) -> None:
    """Show what an ONNX model contains: tensors, batching, tokenizer, task, size, releases that can load it.

    Reads the graph only, however large the weights are. Of a model repository it lists the endpoints: task,
    versions, inputs, outputs and the release that each was built for.

    \b
    Examples:
      trb inspect bert.onnx
      trb inspect exported/minilm --json | jq .releases
      trb inspect model_repository
    """
    from triton_repo_builder.cli import hub
    from triton_repo_builder.model.read.options import BuildOptions
    from triton_repo_builder.model.read.source import SourceOverrides
    from triton_repo_builder.produce import inspect
    from triton_repo_builder.repository import contents

    if contents.is_repository(path):
        if tokenizer or file:
            raise click.UsageError(f"{path} is a model repository: --tokenizer and --file are for a model.")
        _print_repository(path, as_json=as_json)
        return
    options, notes = hub.fetched(BuildOptions(model=path, tokenizer=tokenizer, file=file))
    for note in notes:
        console.note(note)
    inspection = inspect.inspect(options.model, SourceOverrides.of(options))
    if as_json:
        import json

        console.echo(json.dumps(inspect.as_json(inspection), indent=1, ensure_ascii=False))
    else:
        _print(inspection)


def _print_repository(path: Path, *, as_json: bool) -> None:
    from triton_repo_builder import repository
    from triton_repo_builder.repository import contents

    entries = contents.entries(repository.read(path))
    if as_json:
        import json

        listed = [entry.to_json() for entry in entries]
        console.echo(json.dumps({"repository": str(path), "endpoints": listed}, indent=1, ensure_ascii=False))
        return
    rows = [
        (
            entry.endpoint.name,
            entry.task or "not built by trb",
            ", ".join(f"{each}{'' if each in entry.served else ' (waits)'}" for each in entry.versions),
            _tensors(entry.endpoint.inputs),
            _tensors(entry.endpoint.outputs),
            entry.triton_release,
        )
        for entry in entries
    ]
    console.table(("endpoint", "task", "version", "inputs", "outputs", "Triton"), rows)


def _tensors(tensors: tuple[Tensor, ...]) -> str:
    lines = (f"{'optional ' if each.optional else ''}{each.name} {each}" for each in tensors)
    return visible("\n".join(lines)) or "left to the server"


def _print(inspection: Inspection) -> None:
    from rich.table import Table

    signature = inspection.source.signature
    output = console.output()
    output.print(console.cell(str(inspection.source.path), "bold"))
    rows = []
    for role, specs in (
        ("input", signature.inputs),
        ("output", signature.outputs),
        ("optional", signature.optional_inputs[:8]),
    ):
        for spec in specs:
            shape = (
                "unknown"
                if spec.shape is None
                else str([dim if dim is not None else "?" for dim in spec.shape])
            )
            kind = spec.dtype.name if spec.kind == "tensor" else spec.kind
            rows.append((role, visible(spec.name, lines=False), kind, shape.replace("'", "")))
    console.table(("", "name", "type", "shape"), rows)
    facts = Table(box=None, show_header=False, pad_edge=False)
    for key, value in _facts(inspection):
        facts.add_row(console.cell(key, "bold"), console.cell(value))
    output.print(facts)
    if inspection.problem:
        output.print(console.cell(f"a build would fail: {inspection.problem.message}", "yellow"))
        output.print(console.cell(f"  fix: {inspection.problem.remedy}"))


def _facts(inspection: Inspection) -> list[tuple[str, str]]:
    from triton_repo_builder.endpoint.tasks.support import audio

    src, signature = inspection.source, inspection.source.signature
    external = ", ".join(file.location for file in signature.external)
    others = [f"{domain} {version}" for domain, version in signature.opsets if domain != "ai.onnx"]
    length = (
        f", at most {inspection.max_length} tokens ({inspection.max_length_from})"
        if inspection.max_length
        else ""
    )
    # A recogniser of speech has the vocab.json of a tokenizer, and takes no text.
    sound = audio.audio_input(signature) is not None
    media = "audio" if sound else "images"
    return [
        (
            "batchable",
            "yes, by its shapes (trb build runs it to be sure)"
            if signature.batch.possible
            else f"no: {signature.batch.reason}",
        ),
        ("opset", ", ".join([str(signature.opset), *others]) + f"  (IR version {signature.ir_version})"),
        ("producer", visible(signature.producer, lines=False) or "unknown"),
        ("size", f"{signature.bytes:,} bytes" + (f", with {external}" if external else "")),
        *(() if sound else (("tokenizer", f"{src.tokenizer}{length}" if src.tokenizer else "none found"),)),
        *(((media, f"preprocessed as in {src.preprocessor}"),) if src.preprocessor else ()),
        ("task", inspection.task + (f"  ({inspection.task_reason})" if inspection.task_reason else "")),
        ("Triton", _releases(inspection)),
    ]


def _releases(inspection: Inspection) -> str:
    if not inspection.after_lowering:
        return f"none loads it: {visible(inspection.fault)}" if inspection.fault else "none loads this opset"
    span = f"{inspection.after_lowering[0]} to {inspection.after_lowering[-1]}"
    if inspection.releases == inspection.after_lowering:
        return span
    direct = f"{inspection.releases[0]} and newer" if inspection.releases else "none"
    return f"{span} after trb build, which lowers the IR version; the file as it is: {direct}"
