"""``trb optimize``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import Duration, Place, Real

if TYPE_CHECKING:
    from triton_repo_builder.measure.optimize.run import Measured, Outcome


SPARSE = 0.05
"""Share of zeros among the weights that somebody must have made on purpose."""


@click.command("optimize")
@click.argument("model", type=Place())
@click.option("--output", "-o", type=Place(), required=True, help="Folder to write; it must not exist.")
@click.option(
    "--steps",
    metavar="STEP,STEP",
    help="prune, fuse, fp16, int8; int8:per-row, :per-channel, :static or :dynamic takes one way.  [default: "
    "int8, after prune if heads or neurons are zero]",
)
@click.option("--recipe", type=Place(), help="Repeat the steps of a recipe.json, without a search.")
@click.option("--samples", type=Place(), help="Texts to compare on, one per line.  [default: shipped ones]")
@click.option(
    "--labelled",
    type=Place(),
    metavar="FILE.jsonl",
    help="Examples with the right answer: accuracy, F1, Spearman or nDCG of every step.",
)
@click.option(
    "--max-drop",
    type=Real(0, 1),
    default=0.005,
    show_default=True,
    help="Most that the mean accuracy may fall; its 1 % quantile may fall three times as far.",
)
@click.option(
    "--budget", type=Duration(), default=300.0, metavar="TIME", help="Time of the search.  [default: 5m]"
)
@click.option("--task", metavar="TASK", help="What the model is for.  [default: from the model's files]")
@click.option("--pooling", metavar="POOLING", help="As for trb build, of a model that does not say.")
@click.option("--tokenizer", type=Place(), help="tokenizer.json or its folder, if not beside the model.")
@click.option("--file", metavar="NAME", help="Which ONNX file, if MODEL is a folder with several.")
@click.option(
    "--device", type=click.Choice(("cpu", "gpu", "auto")), default="auto", help="Where it will be served."
)
@click.option("--triton-release", metavar="YY.MM", help="Release that will serve it.  [default: 24.10]")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    model: Path,
    output: Path,
    steps: str | None,
    recipe: Path | None,
    samples: Path | None,
    labelled: Path | None,
    max_drop: float,
    budget: float,
    task: str | None,
    pooling: str | None,
    tokenizer: Path | None,
    file: str | None,
    device: str,
    triton_release: str | None,
    as_json: bool,
) -> int:
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
    from triton_repo_builder.base.errors import Code, TrbError
    from triton_repo_builder.measure.optimize import output as outputs
    from triton_repo_builder.measure.optimize import recipe as recipes
    from triton_repo_builder.measure.optimize import run, speed
    from triton_repo_builder.model.read.option_checks import check
    from triton_repo_builder.model.read.options import BuildOptions

    if recipe and steps:
        raise click.UsageError("--recipe and --steps both say what to do: leave one of them out.")
    chosen = recipes.read(recipe) if recipe else recipes.parse(steps if steps is not None else recipes.INT8)
    if not chosen:
        raise click.UsageError("there is no step to take: --steps int8, for instance.")
    options = check(
        BuildOptions(
            model=model,
            file=file,
            task=task,
            pooling=pooling,
            tokenizer=tokenizer,
            device=device,
            triton_release=triton_release,
            golden=False,
        )
    )
    settings = run.Settings(
        pruning=recipe is None and steps is None,
        steps=chosen,
        samples=samples,
        labelled=labelled,
        max_drop=max_drop,
        budget=budget,
    )
    with outputs.staging(output) as folder, console.progress() as progress:
        outcome = run.optimize(options, settings, folder, progress)
        if not outcome.failure:
            outputs.write(outcome, output, folder)
    if outcome.failure:
        if not as_json:
            _print(outcome)
        error = TrbError(
            Code.ACCURACY_LOST,
            f"{outcome.lines[-1].step}: {outcome.failure}; nothing was written",
            where=str(model),
            remedy=f"raise --max-drop (now {max_drop:g}) if that loss is acceptable, or take other --steps",
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
        _note_speed(outcome)
        console.echo(f"wrote {output}; next: trb build --model {output}")
    return 0


def _note_speed(outcome: Outcome) -> None:
    """What the table's numbers are worth, and a result that gains no speed."""
    from triton_repo_builder.measure.bench.report.table import NOISE

    busy = max(line.speed.others for line in outcome.lines)
    if busy > NOISE:
        console.note(f"other programs used {busy:.0%} of this machine's CPU: measure again when it is idle")
    first, last = outcome.lines[0], outcome.lines[-1]
    if last.speed.ratio <= 1:
        smaller = last.bytes < first.bytes
        how = "slower" if last.speed.ratio < 1 else "no faster (the difference is within noise)"
        joined = "smaller, but" if smaller else "not smaller, and"
        console.note(f"it is {joined} {how} than the original on this machine")


def _note_zeros(outcome: Outcome) -> None:
    """What was cut out, and what is zero without a gain."""
    zeros = outcome.zeros
    if zeros.any:
        console.note(f"{zeros.heads} heads and {zeros.neurons} neurons are zero: they were cut out")
    if zeros.single > SPARSE:
        console.note(
            f"{zeros.single:.0%} of {'the other' if zeros.any else 'the'} weights are zero one by one: that "
            "makes no file smaller and no product faster"
        )


def _print(outcome: Outcome) -> None:
    sizes = [f"ms, batch {size}" for size in outcome.lines[0].speed.latency]
    numbers = ["MB", "of size", *sizes, "rows/s", "speed", "to before"]
    measure = outcome.lines[-1].accuracy.measure
    low = any(line.accuracy.lowest is not None for line in outcome.lines)
    change = any(line.accuracy.change is not None for line in outcome.lines)
    more = [measure, *(["1 % quantile"] if low else []), *(["largest change"] if change else [])]
    more += [f"labelled {name}" for name in outcome.lines[0].quality]
    rows = []
    for number, line in enumerate(outcome.lines):
        rows.append(_row(line, outcome.lines[0], outcome.lines[max(0, number - 1)], low=low, change=change))
    examples = f", {outcome.labelled} labelled examples" if outcome.labelled else ""
    console.echo(f"{outcome.samples.count} samples ({outcome.samples.about}){examples}, one thread:")
    console.table(["step", *numbers, *more], rows, right=[*numbers, *more])


def _latency(line: Measured, size: int) -> str:
    if line.speed.apart and size > 1:
        return "row by row"
    value = line.speed.latency.get(size)
    return "-" if value is None else f"{value:.1f}" if value >= 1 else f"{value:.3f}"


def _row(line: Measured, first: Measured, before: Measured, *, low: bool, change: bool) -> list[str]:
    """Numbers of a step; of the original no accuracy, which is what it is measured by."""
    latencies = [_latency(line, size) for size in first.speed.latency]
    found = line.accuracy
    accuracy = [f"{found.mean:.4f}" if found.measure else "-"]
    if low:
        accuracy.append("-" if found.lowest is None else f"{found.lowest:.4f}")
    if change:
        accuracy.append("-" if found.change is None else f"{found.change:.3f}")
    return [
        line.step,
        f"{line.bytes / 1e6:.1f}",
        f"{100 * line.bytes / first.bytes:.1f} %",
        *latencies,
        f"{line.speed.throughput:.0f}",
        f"{line.speed.ratio:.2f}",
        f"{line.speed.ratio / before.speed.ratio:.2f}",
        *accuracy,
        *(f"{value:.4f}" for value in line.quality.values()),
    ]
