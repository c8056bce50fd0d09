"""``trb optimize``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, declare, option
from triton_repo_builder.base.option_values import Choice, FilePath, Switch, Text
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import Place
from triton_repo_builder.measure.options import OptimizeOptions

if TYPE_CHECKING:
    from triton_repo_builder.measure.optimize.run import Measured, Outcome


SPARSE = 0.05
"""Share of zeros among the weights above which they are taken as intended."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The model, as for ``trb build``."""

    task: str | None = option(
        None, Text(), Topic.MODEL, "What the model is for.", default="from the model's files", metavar="TASK"
    )
    pooling: str | None = option(
        None, Text(), Topic.MODEL, "As for trb build, of a model that does not say.", metavar="POOLING"
    )
    tokenizer: Path | None = option(
        None, FilePath(), Topic.MODEL, "tokenizer.json or its folder, if not beside the model."
    )
    file: str | None = option(
        None, Text(), Topic.MODEL, "Which ONNX file, if MODEL is a folder with several.", metavar="NAME"
    )
    device: str = option("auto", Choice(("cpu", "gpu", "auto")), Topic.MODEL, "Where it will be served.")
    triton_release: str | None = option(
        None,
        Text(),
        Topic.MODEL,
        "Release that will serve it; auto: the release of its engine.",
        default="auto",
        metavar="auto|YY.MM",
    )


@dataclass(frozen=True, kw_only=True)
class ResultOptions:
    """Destination of the result."""

    output: Path = field(
        metadata=declare(FilePath(), Topic.OUTPUT, "Folder to write; it must not exist.", also=("-o",))
    )
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the report as JSON.", flag="--json")


@click.command("optimize", cls=declared.TopicCommand)
@click.argument("model", type=Place())
@declared.options(options=OptimizeOptions, source=ModelOptions, result=ResultOptions)
def command(model: Path, options: OptimizeOptions, source: ModelOptions, result: ResultOptions) -> int:
    """Write a smaller, faster file of a model, if its answers stay what they were.

    Every step is compared with the original on samples, through the model's own tokenizer or preprocessing;
    one that loses more than --max-drop is reported, and nothing is written. int8 is searched for: the fastest
    way that passes. OUT is a folder that trb build takes, with the recipe and the report.

    \b
    Examples:
      trb optimize exported/minilm -o exported/minilm-int8
      trb optimize bert.onnx -o bert-int8 --samples questions.txt --max-drop 0.01
      trb optimize bert.onnx -o bert-fast --steps fuse,int8:per-row
      trb optimize retrained.onnx -o retrained-int8 --recipe bert-int8/recipe.json
    """
    from triton_repo_builder.base import new_folder
    from triton_repo_builder.base.errors import Code, TrbError
    from triton_repo_builder.cli import hub, release
    from triton_repo_builder.measure.optimize import output as outputs
    from triton_repo_builder.measure.optimize import run, speed
    from triton_repo_builder.model.read.option_checks import check
    from triton_repo_builder.model.read.options import BuildOptions

    build = check(BuildOptions(model=model, golden=False, **asdict(source)))
    output, as_json = result.output, result.as_json
    build, notes = hub.fetched(release.resolved(build))
    for note in notes:
        console.note(note)
    outputs.check(output)
    with new_folder.staging(output) as folder, console.progress() as progress:
        outcome = run.optimize(build, options, folder, progress)
        if not outcome.failure:
            outputs.write(outcome, output, folder)
    if outcome.failure:
        if not as_json:
            _print(outcome)
        error = TrbError(
            Code.ACCURACY_LOST,
            f"{outcome.lines[-1].step}: {outcome.failure}; nothing was written",
            where=str(model),
            remedy=f"raise --max-drop (now {options.max_drop:g}) if that loss is acceptable, "
            "or take other --steps",
        )
        raise error
    if as_json:
        import json

        console.echo(json.dumps(outputs.as_json(outcome), indent=1))
    else:
        _print(outcome)
        _note_zeros(outcome)
        if outcome.source.signature.bytes > speed.LEAN:
            console.note(
                "the original is timed without the packed copy of its weights that a server makes, which "
                "would double its memory: it is faster than that when it is served"
            )
        gains = _note_speed(outcome)
        after = f"next: trb build --model {output}" if gains else "nothing speaks for it: keep the original"
        console.echo(f"wrote {output}; {after}")
    return 0


def _note_speed(outcome: Outcome) -> bool:
    """Note how precise the table's numbers are and what is not better. Whether anything is: size or speed."""
    from triton_repo_builder.measure.bench.report.table import NOISE

    busy = max(line.speed.others for line in outcome.lines)
    if busy > NOISE:
        console.note(f"other programs used {busy:.0%} of this machine's CPU: measure again when it is idle")
    first, last = outcome.lines[0], outcome.lines[-1]
    smaller = last.bytes < first.bytes
    if last.speed.ratio <= 1:
        how = "slower" if last.speed.ratio < 1 else "no faster (the difference is within noise)"
        joined = "smaller, but" if smaller else "not smaller, and"
        console.note(f"it is {joined} {how} than the original on this machine")
    return smaller or last.speed.ratio > 1


def _note_zeros(outcome: Outcome) -> None:
    """Note which layers or heads were cut out, and which zeros bring no gain."""
    zeros = outcome.zeros
    if zeros.any:
        console.note(f"{zeros.heads} heads and {zeros.neurons} neurons are zero: they were cut out")
    if zeros.single > SPARSE:
        console.note(
            f"{zeros.single:.0%} of {'the other' if zeros.any else 'the'} weights are zero one by one: that "
            "makes no file smaller and no product faster"
        )


def _print(outcome: Outcome) -> None:
    sizes = [f"ms,\nbatch {size}" for size in outcome.lines[0].speed.latency]
    several = len(outcome.lines) > 2
    faster = ["times\nas fast", *(["than the\nstep before"] if several else [])]
    numbers = ["MB", "of the\noriginal", *sizes, "rows/s", *faster]
    measure = outcome.lines[-1].accuracy.measure
    low = any(line.accuracy.lowest is not None for line in outcome.lines)
    change = any(line.accuracy.change is not None for line in outcome.lines)
    quality = [measure, *(["1 %\nquantile"] if low else []), *(["largest\nchange"] if change else [])]
    quality += [f"labelled {name}" for name in outcome.lines[0].quality]
    rows = []
    for number, line in enumerate(outcome.lines):
        before = outcome.lines[max(0, number - 1)] if several else None
        rows.append(_row(line, outcome.lines[0], before, low=low, change=change))
    examples = f", {outcome.labelled} labelled examples" if outcome.labelled else ""
    console.echo(f"{outcome.samples.count} samples ({outcome.samples.about}){examples}, one thread:")
    console.table(["step", *numbers, *quality], rows, right=[*numbers, *quality])


def _latency(line: Measured, size: int) -> str:
    if line.speed.apart and size > 1:
        return "row by row"
    value = line.speed.latency.get(size)
    return "-" if value is None else f"{value:.1f}" if value >= 1 else f"{value:.3f}"


def _row(line: Measured, first: Measured, before: Measured | None, *, low: bool, change: bool) -> list[str]:
    """Numbers of a step; the original has no accuracy because the others are compared with it.

    ``before``: the step before, if its speed is compared, too.
    """
    latencies = [_latency(line, size) for size in first.speed.latency]
    measured = line.accuracy
    accuracy = [f"{measured.mean:.4f}" if measured.measure else "-"]
    if low:
        accuracy.append("-" if measured.lowest is None else f"{measured.lowest:.4f}")
    if change:
        accuracy.append("-" if measured.change is None else f"{measured.change:.3f}")
    return [
        line.step,
        f"{line.bytes / 1e6:.1f}",
        f"{100 * line.bytes / first.bytes:.1f} %",
        *latencies,
        f"{line.speed.throughput:.0f}",
        f"{line.speed.ratio:.2f}",
        *([f"{line.speed.ratio / before.speed.ratio:.2f}"] if before else []),
        *accuracy,
        *(f"{value:.4f}" for value in line.quality.values()),
    ]
