"""``trb build``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from triton_repo_builder.cli import build_report, console
from triton_repo_builder.cli.options import Place
from triton_repo_builder.read.options import BATCHING, DEVICES


@click.command(name="build", short_help="Turn an ONNX model into a Triton model repository.")
@click.option("--model", type=Place(), help="ONNX file, or a folder that an exporter wrote.")
@click.option("--all", "folder", type=Place(), help="Build every model found below this folder.")
@click.option("--fail-fast", is_flag=True, help="With --all: stop at the first model that fails.")
@click.option("--name", help="Name of the endpoint.  [default: from the file or folder]")
@click.option(
    "--tokenizer",
    type=Place(),
    help="tokenizer.json or its folder.  [default: beside the model]",
)
@click.option(
    "--preprocessor",
    type=Place(),
    help="preprocessor_config.json of an image model or its folder.  [default: beside the model]",
)
@click.option(
    "--task",
    help="embedding, sparse-embedding, late-interaction, text-classification, rerank, token-classification, "
    "question-answering, fill-mask, zero-shot-classification, image-classification, image-embedding or "
    "tensor.  [default: from the model's files]",
)
@click.option("--output", type=Place(), help="The repository.  [default: model_repository]")
@click.option(
    "--version", "version", metavar="N|next", help="Version to write; next: beside the others.  [default: 1]"
)
@click.option(
    "--keep",
    type=click.IntRange(1),
    metavar="N",
    help="Then keep the newest N versions only, and the served one and the one before.",
)
@click.option(
    "--batching",
    type=click.Choice(BATCHING),
    help="Join waiting requests.  [default: auto: on if the graph can]",
)
@click.option("--max-batch-size", type=int, help="Most rows in a batch.  [default: 32; by memory on a GPU]")
@click.option("--preferred-batch-size", help="Batch sizes to wait for, e.g. 8,16. The largest caps batches.")
@click.option("--max-queue-delay", help="How long to wait for them, e.g. 200us.  [default: 0]")
@click.option("--device", type=click.Choice(DEVICES), help="Where it will run.  [default: as this machine]")
@click.option("--instances", type=int, help="Instances of the model.  [default: one per core or GPU]")
@click.option(
    "--tokenizer-instances", type=int, help="Instances of the tokenizer or image decoder.  [default: 1]"
)
@click.option("--threads", type=int, help="ONNX Runtime threads of one instance; 0: all cores.  [default: 1]")
@click.option(
    "--padding",
    help="ragged (any mix of lengths is a batch, padded in the graph), batch (padded to the longest text "
    "that the tokenizer has at that moment), rows (to the longest of a request) or fixed:N.  "
    "[default: ragged; batch where the graph cannot take that; rows for --raw-output where an output is as "
    "long as its text]",
)
@click.option(
    "--raw-output", is_flag=True, default=None, help="The model's own outputs: no pooling, softmax or labels."
)
@click.option(
    "--max-length", type=int, help="Truncate after so many tokens.  [default: the model's own maximum]"
)
@click.option(
    "--pooling", help="mean, cls, max, lasttoken, weightedmean, mean_sqrt_len.  [default: from 1_Pooling/]"
)
@click.option(
    "--normalize/--no-normalize", default=None, help="Embeddings of length 1.  [default: from modules.json]"
)
@click.option(
    "--truncate-dim",
    type=int,
    help="Embedding: give its first N values only, of a model trained for that (Matryoshka).  "
    "[default: from its files]",
)
@click.option(
    "--prompt",
    metavar="NAME|TEXT",
    help="Before every text to embed: one of config_sentence_transformers.json, or a text; '' for none.  "
    "[default: that file's default_prompt_name]",
)
@click.option(
    "--query/--document",
    default=None,
    help="Late interaction: what this endpoint encodes.  [default: document]",
)
@click.option(
    "--query-length", type=int, help="Late interaction: tokens of a query.  [default: from its files]"
)
@click.option(
    "--aggregation", help="none, simple, first, average or max: tokens to entities.  [default: simple]"
)
@click.option(
    "--handle-impossible-answer/--no-handle-impossible-answer",
    default=None,
    help="Question answering may answer nothing.  [default: no, as transformers' pipeline]",
)
@click.option(
    "--top-k",
    type=int,
    help="How many tokens fill-mask gives for a mask, and labels for an image.  [default: 5]",
)
@click.option("--hypothesis-template", help="Zero-shot.  [default: 'This example is {}.']")
@click.option(
    "--multi-label/--single-label", default=None, help="Zero-shot labels by themselves.  [default: single]"
)
@click.option("--triton-release", help="Release to build for, e.g. 24.10.  [default: 24.10]")
@click.option(
    "--response-cache", is_flag=True, default=None, help="Let the server cache the endpoint's answers."
)
@click.option(
    "--warmup/--no-warmup", default=None, help="Run a first request while loading.  [default: warmup]"
)
@click.option(
    "--golden/--no-golden",
    default=None,
    help="Record the original's answers for trb smoke.  [default: golden]",
)
@click.option(
    "--tokenizers-wheel",
    type=Place(),
    help="Linux wheel to vendor, when not on Linux x86-64.",
)
@click.option("--source-run", metavar="ID", help="The training run that made the model, e.g. of ClearML.")
@click.option("--dataset-id", metavar="ID", help="The data set (version) that it was trained on.")
@click.option("--label", multiple=True, metavar="K=V", help="Anything else to record (repeatable).")
@click.option(
    "--pillow-wheel",
    type=Place(),
    multiple=True,
    help="Linux wheel of Pillow to vendor, one for each Python that will serve (repeatable).",
)
@click.option(
    "--share-tokenizer/--no-share-tokenizer",
    default=None,
    help="Store equal tokenizer models once.  [default: only with --all]",
)
@click.option("--config", type=Place(), help="trb.toml with a [build] table; flags override it.")
@click.option("--force", is_flag=True, help="Replace files that were edited since trb wrote them.")
@click.option("--dry-run", is_flag=True, help="List what would change; write nothing.")
@click.option("--diff", "show_diff", is_flag=True, help="Show the change as a diff; write nothing.")
@click.option("--explain", is_flag=True, help="Say why each setting has its value.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    folder: Path | None,
    fail_fast: bool,
    config: Path | None,
    force: bool,
    dry_run: bool,
    show_diff: bool,
    explain: bool,
    as_json: bool,
    keep: int | None,
    **flags: Any,
) -> int:
    """Turn an ONNX model into a Triton model repository.

    With --all every model below a folder: its endpoint is named by its path there, a trb.toml in its folder
    holds options of its own, equal tokenizers are stored once. A model that fails does not stop the others.

    \b
    Examples:
      trb build --model bert.onnx --batching on
      trb build --model exported/minilm --name minilm --max-batch-size 64
      trb build --model resnet.onnx --task tensor --instances 4
      trb build --model bert.onnx --device gpu --explain
      trb build --config trb.toml --diff
      trb build --all exported --output model_repository
    """
    from dataclasses import replace

    from triton_repo_builder.build import build
    from triton_repo_builder.read import options, source
    from triton_repo_builder.write import publish, versions

    if flags["max_queue_delay"] is not None:
        flags["max_queue_delay"] = options.duration(flags["max_queue_delay"])
    if flags["preferred_batch_size"] is not None:
        flags["preferred_batch_size"] = options.sizes(flags["preferred_batch_size"])
    flags["label"] = options.labels(flags["label"]) or None
    beside = flags["version"] == "next"
    flags["version"] = None if beside else _number(flags["version"])
    flags["pillow_wheel"] = flags["pillow_wheel"] or None
    default = Path("trb.toml")
    config = config or (default if default.is_file() else None)
    if folder is not None:
        from triton_repo_builder.cli import build_all

        if explain:
            raise options.usage("explain", "has no meaning with --all", "use --json, which has every setting")
        if beside or keep:
            raise options.usage(
                "version" if beside else "keep",
                "is for one endpoint, not for --all",
                "build that model by itself",
            )
        writes = not (dry_run or show_diff)
        return build_all.run(
            folder,
            config,
            flags,
            force=force or not writes,
            fail_fast=fail_fast,
            write=writes,
            show="json" if as_json else "diff" if show_diff else "text",
        )
    if keep and not (beside or flags["version"] or (config and "version" in options.read_toml(config))):
        raise click.UsageError("--keep goes with --version next (or --version N).")
    if fail_fast:
        raise options.usage("fail_fast", "has a meaning only with --all", "leave it out")
    merged = options.merge(flags, config)
    console.recovered(merged.output, write=not (dry_run or show_diff))
    if beside:
        name = merged.name or source.default_name(source.model_file(merged.model))
        merged = replace(merged, version=versions.following(merged.output, name))
    with console.status() as progress:
        made = build.build(merged, progress)
        progress("comparing with what is there")
        made = versions.place(made, merged.output, serve=not beside, force=force or dry_run or show_diff)
        publication = publish.prepare(made, merged.output, force=force or dry_run or show_diff)
        if not (dry_run or show_diff):
            progress("writing")
            publish.publish(publication)
            gone, own = versions.prune(merged.output, made.name, keep) if keep else ((), ())
            notes = [f"version {v} was removed (--keep)" for v in gone]
            notes += [f"{file} is not as trb wrote it: its version stays (--keep)" for file in own]
            made = replace(made, notes=(*made.notes, *notes))
    if as_json:
        click.echo(build_report.as_json(made, publication, written=not (dry_run or show_diff)))
    elif show_diff:
        click.echo(publish.diff(publication) or "no change", nl=not publication.changes)
    else:
        build_report.print_build(made, publication, written=not dry_run)
    if explain and not as_json:
        build_report.print_settings(made)
    return 0


def _number(text: str | None) -> int | None:
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    raise click.BadParameter(f"'{text}' is neither a number nor next", param_hint="--version")
