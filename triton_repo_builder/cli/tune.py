"""``trb tune``: search the best setting under a latency objective, prove it, write it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import Switch, Text
from triton_repo_builder.cli import console, declared, engines, interrupts
from triton_repo_builder.cli.options import Address, Place
from triton_repo_builder.measure.options import TuneOptions

if TYPE_CHECKING:
    from triton_repo_builder.measure.tune.live import Live
    from triton_repo_builder.measure.tune.matrix import Row
    from triton_repo_builder.measure.tune.report import Report
    from triton_repo_builder.repository import Repository
    from triton_repo_builder.run.client import Urls

SHOWN = 12
"""Trials in the terminal; the report has all."""
TOML = Path("trb.toml")


@dataclass(frozen=True, kw_only=True)
class TuneAddress(Address):
    """A running server, on which models are loaded with other settings."""

    url: str | None = option(
        None,
        Text(),
        Topic.RUNNING,
        "HTTP url of a running server in explicit mode; without it, one is started.",
    )


@dataclass(frozen=True, kw_only=True)
class ResultOptions:
    """Use of the result."""

    write: bool = option(False, Switch(), Topic.OUTPUT, "Write the chosen setting, proven by trb smoke.")
    matrix: bool = option(
        False, Switch(), Topic.OUTPUT, "No search: instances and batching on and off, for each variant."
    )
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the report as JSON.", flag="--json")


@click.command("tune", cls=declared.TopicCommand)
@click.argument("repo", required=False, type=Place())
@declared.options(
    options=TuneOptions, address=TuneAddress, engine=engines.EngineOptions, result=ResultOptions
)
def command(
    repo: Path | None,
    options: TuneOptions,
    address: TuneAddress,
    engine: engines.EngineOptions,
    result: ResultOptions,
) -> int:
    """Search the setting that answers most requests while the objective holds.

    Loads the endpoint's models with other configurations on a running server; REPO (default:
    model_repository) is not touched. What wins is measured again, in turn with the setting as it is, and only
    a winner in every round is advised. Ctrl-C ends the search and keeps what was learned. Exit code 1 if no
    setting meets the objective.

    \b
    Examples:
      trb tune --slo p99=50ms
      trb tune --slo p99=50ms --budget 20m --output tuned     again with the same folder: goes on
      trb tune --slo p99=50ms --write                         config.pbtxt, trb.toml, manifest.json
      trb tune --slo p99=100ms --endpoint minilm --variants minilm_int8
      trb tune --slo p99=50ms --url http://localhost:8000
      trb tune --slo p99=500ms --matrix
    """
    from triton_repo_builder.measure.bench.options import check
    from triton_repo_builder.measure.tune import run
    from triton_repo_builder.measure.tune.live import Live, affected, needed

    if len(options.protocols) > 1:
        raise click.UsageError("--protocol: the search needs one protocol.")
    if result.matrix and (result.write or options.output):
        raise click.UsageError("--matrix is a table on standard output: leave out --write and --output.")
    address.send_key()
    check(options.bench)
    starts = address.url is None
    repository = engines.repository(repo, needed=starts or result.write)
    if options.endpoint in options.variants:
        raise click.UsageError(f"--variants: {options.endpoint} is what --endpoint names; leave it out.")
    chosen = starts or (result.write and options.endpoint)
    names = needed(repository, options.endpoint, options.variants) if repository and chosen else ()
    if repository and result.write:  # what is written must not break others that share a model
        names = affected(repository, names)
    loaded = names if starts else ()
    live = Live(lambda: engines.reached(repository, address, engine, models=loaded), repository, own=starts)
    if result.matrix:
        return _matrix(live, options, as_json=result.as_json)
    options = replace(options, command=declared.command_line())
    with _folder(options.output):
        try:
            report = _tuned(live, options, prove=partial(_smoke, names=names) if result.write else None)
        except run.Ended as ended:
            _show(ended.report, options.output, as_json=False, quiet=result.as_json)
            raise
        _show(report, options.output, as_json=result.as_json)
    if report.better and repository is not None:
        with interrupts.ctrl_c_in_background():
            _settle(report, repository, engine, result)
    return 0


@contextmanager
def _folder(output: Path | None) -> Iterator[None]:
    """The folder of the search, locked against other runs."""
    from triton_repo_builder.measure.tune import output as outputs
    from triton_repo_builder.repository.journal import staging

    if output is None:
        yield
        return
    outputs.open_folder(output)
    with staging.exclusive(output):
        yield


def _show(report: Report, output: Path | None, *, as_json: bool, quiet: bool = False) -> None:
    """Write the report to its folder, and print it unless an error follows as JSON."""
    from triton_repo_builder.measure.tune import output as outputs

    if as_json:
        console.echo(outputs.text(report), nl=False)
    elif not quiet:
        _print(report)
    # Afterwards: what took minutes to measure is shown, too, if the disk is full.
    for path in outputs.write(report, output) if output else ():
        if not (as_json or quiet):
            console.echo(f"wrote {path}")


def _tuned(
    live: Live, options: TuneOptions, *, prove: Callable[[Urls, Repository | None], None] | None
) -> Report:
    from triton_repo_builder.measure.tune import run

    with interrupts.ctrl_c_in_background(), _progress() as progress:
        return run.tune(live, options, progress, prove=prove)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar with the time left on a terminal; a line for each trial elsewhere."""
    with console.progress("items") as advance:
        terminal = sys.stderr.isatty()

        def tell(text: str, done: int, total: int) -> None:
            advance(text, done, total)
            if not terminal:
                left = max(0, total - done)
                console.echo(f"{left // 60}:{left % 60:02} left, {text}", err=True)

        yield tell


def _smoke(urls: Urls, repository: Repository | None, *, names: tuple[str, ...] = ()) -> None:
    """Raise ``TrbError`` FAILED_CHECKS if these endpoints, or all, answer wrongly."""
    from triton_repo_builder.base.errors import Code, TrbError
    from triton_repo_builder.run import smoke

    report = smoke.run(urls, repository, smoke.SmokeOptions(endpoints=names))
    bad = [check for check in report.checks if check.status is smoke.Status.FAILED]
    if bad:
        raise TrbError(
            Code.FAILED_CHECKS,
            smoke.did_not_pass(bad, "nothing was written"),
            where=urls.http,
            remedy="see 'trb smoke'",
        )


def _settle(
    report: Report, repository: Repository, engine: engines.EngineOptions, result: ResultOptions
) -> None:
    """Print the changes; with ``--write`` write them, and roll them back if smoke fails."""
    from triton_repo_builder.base.errors import TrbError
    from triton_repo_builder.measure.tune import write_back
    from triton_repo_builder.measure.tune.live import affected

    try:
        changes = write_back.changes(report, repository, TOML)
    except TrbError as error:
        if result.write:
            raise
        console.note(f"what would be written cannot be shown: {error.where}: {error.message}")
        return
    endpoint = write_back.chosen(report)
    if endpoint != report.endpoint:
        console.note(f"have clients call {endpoint}: it is the variant that was chosen")
    if not result.as_json:
        console.echo("".join(change.diff for change in changes), nl=False)
        if changes and not result.write:
            console.echo("nothing was written; --write writes this")
    if not result.write or not changes:
        return
    names = affected(repository, (endpoint, report.endpoint))
    with (
        write_back.written(report, repository, changes),
        engines.running(repository.path, engine, models=names) as server,
    ):
        _smoke(server.urls, engines.repository(repository.path, needed=True), names=names)
    if not result.as_json:
        console.echo(f"wrote {', '.join(change.shown for change in changes)}; trb smoke passes as before")
        if not TOML.is_file() and endpoint == report.endpoint and report.default:
            values = write_back.options(report, {name: report.default.setting[name] for name in report.space})
            lines = ", ".join(f"{key} = {value!r}".replace("'", '"') for key, value in values.items())
            console.note(
                f"there is no trb.toml here: so that the next build keeps it, add to its [build]: {lines}"
            )


def _print(report: Report) -> None:
    from triton_repo_builder.measure.tune import output as outputs

    statuses = [trial.status for trial in report.trials]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    console.echo(f"{report.endpoint}, {report.objective}: {len(report.trials)} settings, {counts}")
    rows = outputs.trial_rows(report)
    columns = outputs.trial_columns(report.objective)
    console.table(columns, rows[:SHOWN], right={"trial", *columns[3:7]})
    if len(rows) > SHOWN:
        console.echo(f"… and {len(rows) - SHOWN} more")
    if report.compared:
        console.echo("proof: the default and the best settings, measured again in turns:")
        columns = outputs.compared_columns(report.objective)
        console.table(columns, outputs.compared_rows(report), right={columns[1], columns[3]})
    if report.gains:
        console.echo("gain by each change alone:")
        console.table(outputs.GAINS, outputs.gain_rows(report))
    if report.better:
        console.echo(f"chosen: {report.chosen}")
    elif report.compared:
        console.echo("the default stays: nothing was better in every round, beyond noise; nothing to write")
    chosen = next((each for each in report.compared if each.name == report.chosen), None)
    if report.rps and chosen and chosen.capacity:
        replicas = -(-report.rps // chosen.capacity)
        console.echo(
            f"{report.rps:g} requests/s need {replicas:.0f} replicas of it, if they come evenly; "
            "trb plan adds a reserve, the cost, and bursts"
        )
    overheads = [trial.overhead for trial in report.trials]
    if overheads:
        mean = sum(overheads) / len(overheads)
        console.echo(
            f"loading models and starting clients took {mean:.1f} s a trial, at most {max(overheads):.1f} s"
        )
    for note in report.notes:
        console.note(note)


def _matrix(live: Live, options: TuneOptions, *, as_json: bool) -> int:
    import json

    from triton_repo_builder.measure.tune import matrix

    endpoints, slo = (options.endpoint, *options.variants), options.objective
    with interrupts.ctrl_c_in_background(), console.progress("items") as progress:
        rows = matrix.measure(live, endpoints, slo, options.bench, progress)
    if as_json:
        console.echo(json.dumps([vars(row) for row in rows], indent=1))
        return _held(rows)
    numbers = ["instances", "requests\na minute", f"{slo.percentile} ms\nat that rate"]
    console.echo(f"requests a minute with {slo}; db: dynamic batching, ig: several instances")
    console.table(
        ["endpoint", "configuration", "dynamic batching", *numbers, "limited by"],
        [
            [
                row.endpoint,
                row.name,
                "yes" if row.batching else "no",
                str(row.instances),
                f"{row.per_minute:,.0f}" if row.per_minute else "-",
                "-" if row.latency_ms is None else f"{row.latency_ms:.1f}",
                row.reason or row.bottleneck,
            ]
            for row in rows
        ],
        right=numbers,
    )
    return _held(rows)


def _held(rows: Sequence[Row]) -> int:
    """The exit code: 1 if the objective held in no row."""
    return 0 if any(row.per_minute for row in rows) else 1
