"""``trb tune``: search the best setting under a latency objective, prove it, write it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.cli import console, engines, interrupts
from triton_repo_builder.cli.options import (
    DEFAULT_REPOSITORY,
    GRPC_URL_HELP,
    Duration,
    Place,
    Protocols,
    Real,
    Slo,
    addresses,
    admin_key_option,
    send_key,
)

if TYPE_CHECKING:
    from triton_repo_builder.measure.bench.objective import Objective
    from triton_repo_builder.measure.tune.live import Live
    from triton_repo_builder.measure.tune.matrix import Row
    from triton_repo_builder.measure.tune.report import Report
    from triton_repo_builder.measure.tune.run import Options
    from triton_repo_builder.repository import Repository
    from triton_repo_builder.run.client import Urls

SHOWN = 12
"""Trials in the terminal; the report has all."""
TOML = Path("trb.toml")


@click.command("tune")
@click.argument("repo", required=False, type=Place())
@click.option("--slo", type=Slo(), required=True, metavar="P=TIME", help="Objective, e.g. p99=50ms.")
@click.option("--rps", type=Real(1e-6), help="Also say how many replicas this needs.")
@click.option(
    "--budget", type=Duration(), default=600.0, metavar="TIME", help="Time of the run.  [default: 10m]"
)
@click.option("--trials", type=click.IntRange(1), help="Settings to measure at most.  [default: no limit]")
@click.option("--url", help="HTTP url of a running server in explicit mode; without it, one is started.")
@engines.options
@click.option("--grpc-url", help=GRPC_URL_HELP)
@admin_key_option
@click.option("--endpoint", metavar="NAME", default="", help="Which endpoint; needed if there are several.")
@click.option(
    "--variants",
    metavar="NAME,NAME",
    default="",
    help="Other endpoints of the same model, built with another precision or padding.",
)
@click.option("--corpus", type=Place(), metavar="FILE", help="Texts to send, one a line.")
@click.option(
    "--protocol", "protocols", type=Protocols(), default="grpc", show_default=True, help="One of them."
)
@click.option("--window", type=Duration(), default="1s", show_default=True, help="Shortest measurement.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31),
    default=1,
    show_default=True,
    help="Of the sampler and the arrivals.",
)
@click.option(
    "--output",
    "-o",
    type=Place(file_okay=False),
    metavar="DIR",
    help="Write report.json, .csv, .html, front.png and the search's log; the same DIR again goes on.",
)
@click.option("--write", "writes", is_flag=True, help="Write the chosen setting, proven by trb smoke.")
@click.option(
    "--matrix", is_flag=True, help="No search: instances and batching on and off, for each variant."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    repo: Path | None,
    slo: Objective,
    rps: float | None,
    budget: float,
    trials: int | None,
    url: str | None,
    engine: engines.Choice,
    grpc_url: str | None,
    admin_key: Path | None,
    endpoint: str,
    variants: str,
    corpus: Path | None,
    protocols: tuple[str, ...],
    window: float,
    seed: int,
    output: Path | None,
    writes: bool,
    matrix: bool,
    as_json: bool,
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
    from triton_repo_builder.measure import bench
    from triton_repo_builder.measure.bench.options import check
    from triton_repo_builder.measure.tune import run
    from triton_repo_builder.measure.tune.live import Live

    if url is None and grpc_url:
        raise click.UsageError("--grpc-url goes with --url.")
    if len(protocols) > 1:
        raise click.UsageError("--protocol: the search needs one protocol.")
    if matrix and (writes or output):
        raise click.UsageError("--matrix is a table on standard output: leave out --write and --output.")
    send_key(url, admin_key)
    load = bench.Options(
        endpoint=endpoint,
        protocols=protocols,
        concurrency=(1,),
        corpus=corpus,
        warmup=window * 0.3,
        window=window,
        seed=seed,
        timeout=max(10.0, slo.ms / 250),
    )
    check(load)
    repository = _repository(repo, needed=url is None or writes)
    live = Live(_opener(repository, engine, url, grpc_url), repository, own=url is None)
    named = tuple(dict.fromkeys(filter(None, (name.strip() for name in variants.split(",")))))
    if endpoint in named:
        raise click.UsageError(f"--variants: {endpoint} is what --endpoint names; leave it out.")
    if matrix:
        return _matrix(live, (endpoint, *named), slo, load, as_json)
    options = run.Options(
        objective=slo,
        bench=load,
        rps=rps,
        budget=budget,
        trials=trials,
        variants=named,
        seed=seed,
        output=output,
        command=_command_line(),
    )
    with _folder(output):
        try:
            report = _tuned(live, options, proven=writes)
        except run.Ended as ended:
            _show(ended.report, output, as_json=False, quiet=as_json)
            raise
        _show(report, output, as_json=as_json)
    if report.better and repository is not None:
        with interrupts.ctrl_c_in_background():
            _settle(report, repository, engine, writes=writes, quiet=as_json)
    return 0


@contextmanager
def _folder(output: Path | None) -> Iterator[None]:
    """The folder of the search, which no other run uses meanwhile."""
    from triton_repo_builder.measure.tune import output as outputs
    from triton_repo_builder.repository.journal import staging

    if output is None:
        yield
        return
    outputs.open_folder(output)
    with staging.exclusive(output):
        yield


def _show(report: Report, output: Path | None, *, as_json: bool, quiet: bool = False) -> None:
    """The report in its folder, and on standard output unless an error is to follow there as JSON."""
    from triton_repo_builder.measure.tune import output as outputs

    if as_json:
        console.echo(outputs.text(report), nl=False)
    elif not quiet:
        _print(report)
    # Afterwards: what took minutes to measure is shown, too, if the disk is full.
    for path in outputs.write(report, output) if output else ():
        if not (as_json or quiet):
            console.echo(f"wrote {path}")


def _tuned(live: Live, options: Options, *, proven: bool) -> Report:
    from triton_repo_builder.measure.tune import run

    with interrupts.ctrl_c_in_background(), _progress() as progress:
        return run.tune(live, options, progress, prove=_smoke if proven else None)


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


def _smoke(urls: Urls, repository: Repository | None) -> None:
    """Raise ``TrbError`` FAILED_CHECKS if the endpoints do not answer as they should."""
    from triton_repo_builder.base.errors import Code, TrbError
    from triton_repo_builder.run import smoke

    report = smoke.run(urls, repository, smoke.Options())
    bad = [check for check in report.checks if check.status is smoke.Status.FAILED]
    if bad:
        raise TrbError(
            Code.FAILED_CHECKS,
            smoke.did_not_pass(bad, "nothing was written"),
            where=urls.http,
            remedy="see 'trb smoke'",
        )


def _settle(
    report: Report, repository: Repository, engine: engines.Choice, *, writes: bool, quiet: bool
) -> None:
    """Show what would change; with ``--write`` write it, and put it back if smoke does not pass."""
    from triton_repo_builder.base.errors import TrbError
    from triton_repo_builder.measure.tune import write_back

    try:
        made = write_back.changes(report, repository, TOML)
    except TrbError as error:
        if writes:
            raise
        console.note(f"what would be written cannot be shown: {error.where}: {error.message}")
        return
    endpoint = write_back.chosen(report)
    if endpoint != report.endpoint:
        console.note(f"have clients call {endpoint}: it is the variant that was chosen")
    if not quiet:
        console.echo("".join(change.diff for change in made), nl=False)
        if made and not writes:
            console.echo("nothing was written; --write writes this")
    if not writes or not made:
        return
    with write_back.written(report, repository, made), engines.running(repository.path, engine) as server:
        _smoke(server.urls, _repository(repository.path, needed=True))
    if not quiet:
        console.echo(f"wrote {', '.join(change.shown for change in made)}; trb smoke passes as before")
        if not TOML.is_file() and endpoint == report.endpoint and report.default:
            values = write_back.options(report, {name: report.default.setting[name] for name in report.space})
            lines = ", ".join(f"{key} = {value!r}".replace("'", '"') for key, value in values.items())
            console.note(
                f"there is no trb.toml here: so that the next build keeps it, add to its [build]: {lines}"
            )


def _repository(path: Path | None, *, needed: bool) -> Repository | None:
    from triton_repo_builder import repository

    if path is None and not needed and not DEFAULT_REPOSITORY.is_dir():
        return None
    console.recovered(path or DEFAULT_REPOSITORY)
    return repository.read(path or DEFAULT_REPOSITORY)


def _opener(
    repository: Repository | None, engine: engines.Choice, url: str | None, grpc_url: str | None
) -> Callable[[], AbstractContextManager[tuple[Urls, int | None]]]:
    @contextmanager
    def opened() -> Iterator[tuple[Urls, int | None]]:
        if url is not None:
            yield addresses(url, grpc_url), None
            return
        assert repository is not None
        with engines.running(repository.path, engine) as server:
            yield server.urls, server.pid

    return opened


def _command_line() -> str:
    import shlex

    return shlex.join(["trb", *sys.argv[1:]])


def _print(report: Report) -> None:
    from triton_repo_builder.measure.tune import output as outputs

    statuses = [trial.status for trial in report.trials]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    console.echo(f"{report.endpoint}, {report.objective}: {len(report.trials)} settings, {counts}")
    rows = outputs.trial_rows(report)
    right = {"trial", "req/s", "latency ms", "at all req/s", "rows/exec"}
    console.table(outputs.TRIALS, rows[:SHOWN], right=right)
    if len(rows) > SHOWN:
        console.echo(f"… and {len(rows) - SHOWN} more")
    if report.compared:
        console.echo("measured again in alternation:")
        console.table(outputs.COMPARED, outputs.compared_rows(report), right={"req/s", "latency ms"})
    if report.gains:
        console.echo("each factor by itself:")
        console.table(outputs.GAINS, outputs.gain_rows(report))
    if report.better:
        console.echo(f"chosen: {report.chosen}")
    elif report.compared:
        console.echo("the default stays: nothing was better in every round, beyond noise")
    chosen = next((each for each in report.compared if each.name == report.chosen), None)
    if report.rps and chosen and chosen.capacity:
        replicas = -(-report.rps // chosen.capacity)
        console.echo(
            f"{report.rps:g}/s need {replicas:.0f} of it; trb plan has headroom, lost replicas and cost"
        )
    overheads = [trial.overhead for trial in report.trials]
    if overheads:
        mean = sum(overheads) / len(overheads)
        console.echo(
            f"beside measuring a trial took {mean:.1f} s in the mean, at most {max(overheads):.1f} s"
        )
    for note in report.notes:
        console.note(note)


def _matrix(live: Live, endpoints: tuple[str, ...], slo: Objective, load: object, as_json: bool) -> int:
    import json

    from triton_repo_builder.measure import bench
    from triton_repo_builder.measure.tune import matrix

    assert isinstance(load, bench.Options)
    with interrupts.ctrl_c_in_background(), console.progress("items") as progress:
        rows = matrix.measure(live, endpoints, slo, load, progress)
    if as_json:
        console.echo(json.dumps([vars(row) for row in rows], indent=1))
        return _held(rows)
    numbers = ["instances", "requests/min", f"{slo.percentile} ms"]
    console.echo(f"requests a minute with {slo}")
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
