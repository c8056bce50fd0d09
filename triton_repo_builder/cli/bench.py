"""``trb bench``: load a server and print what it did."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.base.text import counted
from triton_repo_builder.cli import console, engines
from triton_repo_builder.cli.options import (
    DEFAULT_REPOSITORY,
    GRPC_URL_HELP,
    METRICS_URL_HELP,
    Duration,
    Numbers,
    Place,
    Protocols,
    Real,
    Slo,
    addresses,
    admin_key_option,
    send_key,
)

if TYPE_CHECKING:
    from triton_repo_builder.measure.bench import BenchReport, Options, Urls
    from triton_repo_builder.measure.bench.objective import Objective
    from triton_repo_builder.repository import Repository

CONCURRENCY = "1,4,16,64"
LAST = 0.5
"""Seconds after a log in which its last answers still count."""


@click.command("bench")
@click.argument("repo", required=False, type=Place())
@click.option("--url", help="HTTP url of a running server; without it, one is started and stopped again.")
@engines.options
@click.option("--grpc-url", help=GRPC_URL_HELP)
@click.option("--metrics-url", help=METRICS_URL_HELP)
@admin_key_option
@click.option("--endpoint", metavar="NAME", default="", help="Model to call; needed if there are several.")
@click.option(
    "--concurrency",
    type=Numbers(int),
    metavar="N,N,…",
    help=f"Closed loop: clients at once.  [default: {CONCURRENCY}, unless --rate is given]",
)
@click.option(
    "--rate",
    "rates",
    type=Numbers(float),
    metavar="R,R,…",
    default=(),
    help="Open loop: requests per second, arriving at random.",
)
@click.option(
    "--protocol",
    "protocols",
    type=Protocols(),
    default="grpc",
    show_default=True,
    help="grpc, http (JSON, as curl sends) and http-binary, separated by commas.",
)
@click.option("--corpus", type=Place(), metavar="FILE", help="Texts to send, one a line.")
@click.option(
    "--lengths", type=Numbers(int), metavar="N,N,…", default=(), help="Texts of exactly so many tokens."
)
@click.option("--fixed", metavar="TEXT", help="Send this one text.")
@click.option(
    "--repeat-share",
    type=Real(0, 1),
    metavar="X",
    help="Share of texts that were sent before, all others are new: what caches gain.",
)
@click.option(
    "--replay",
    type=Place(),
    metavar="LOG",
    help="Send a recorded log (JSON lines) with its own times and texts.",
)
@click.option("--slo", type=Slo(), metavar="P=TIME", help="Also print goodput: answers a second within TIME.")
@click.option(
    "--rows", type=click.IntRange(1), default=1, show_default=True, help="Rows (texts) in each request."
)
@click.option("--warmup", type=Duration(), default="2s", show_default=True, help="Time before measuring.")
@click.option("--window", type=Duration(), default="2s", show_default=True, help="Length of one measurement.")
@click.option(
    "--min-windows", type=click.IntRange(1), default=3, show_default=True, help="Measurements at least."
)
@click.option(
    "--max-windows",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Measurements at most; three that agree end a level.",
)
@click.option(
    "--timeout", type=Duration(), default="30s", show_default=True, help="Time limit of each request."
)
@click.option(
    "--processes", type=click.IntRange(0, 64), default=0, help="Client processes.  [default: up to 4]"
)
@click.option(
    "--output",
    "-o",
    type=Place(file_okay=False),
    metavar="DIR",
    help="Write report.json, .csv, .html, latency.png and throughput.png.",
)
@click.option("--baseline", type=Place(), metavar="FILE", help="report.json to compare with.")
@click.option(
    "--print-perf-analyzer",
    "perf_analyzer",
    type=Place(file_okay=False),
    metavar="DIR",
    help="Also print the equivalent perf_analyzer commands; their input files are written to DIR.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    repo: Path | None,
    url: str | None,
    engine: engines.Choice,
    grpc_url: str | None,
    metrics_url: str | None,
    admin_key: Path | None,
    endpoint: str,
    concurrency: tuple[int, ...] | None,
    rates: tuple[float, ...],
    protocols: tuple[str, ...],
    corpus: Path | None,
    lengths: tuple[int, ...],
    fixed: str | None,
    repeat_share: float | None,
    replay: Path | None,
    slo: Objective | None,
    rows: int,
    warmup: float,
    window: float,
    min_windows: int,
    max_windows: int,
    timeout: float,
    processes: int,
    output: Path | None,
    baseline: Path | None,
    perf_analyzer: Path | None,
    as_json: bool,
) -> int:
    """Load an endpoint and report throughput, latency, failures, batching and CPU.

    REPO is the model repository (default: model_repository). Sends a mix of text lengths, as real traffic
    has; each level is warmed up and measured in windows until three agree. Failed requests are counted by
    kind and stop nothing; exit code 1 only if a level had no answer at all or the server ended.

    \b
    Examples:
      trb bench                                      start a server on ./model_repository and load it
      trb bench --url http://localhost:8000          load a server that runs
      trb bench --concurrency 16 --protocol grpc,http --output before
      trb bench --concurrency 16 --baseline before/report.json
      trb bench --rate 50,100,200                    open loop: arrivals do not wait for answers
      trb bench --concurrency 1 --lengths 32,64,128,256
      trb bench --rate 50,100,200 --slo p99=50ms     also count what was answered in time
      trb bench --replay yesterday.jsonl             {"at": 0.031, "text": "..."} per line
    """
    from triton_repo_builder.measure import bench
    from triton_repo_builder.measure.bench.options import check

    if url is None and (grpc_url or metrics_url):
        raise click.UsageError("--grpc-url and --metrics-url go with --url.")
    send_key(url, admin_key)
    options = bench.Options(
        endpoint=endpoint,
        protocols=protocols,
        concurrency=concurrency or (() if rates or replay else tuple(map(int, CONCURRENCY.split(",")))),
        rates=rates,
        corpus=corpus,
        lengths=lengths,
        fixed=fixed,
        repeat_share=repeat_share,
        replay=replay,
        slo=slo,
        rows=rows,
        warmup=warmup,
        window=window,
        min_windows=min_windows,
        max_windows=max(max_windows, min_windows) if _is_default("max_windows") else max_windows,
        timeout=timeout,
        processes=processes,
        perf_analyzer=perf_analyzer,
        command=_command_line(),
    )
    check(options)
    options = _whole(options) if replay else options
    document = bench.load_baseline(baseline) if baseline else None
    if output:
        bench.open_folder(output)
    repository = _repository(repo, needed=url is None)
    _announce(options)
    report = _run(repository, engine, (url, grpc_url, metrics_url), options)
    if document is not None and baseline is not None:
        report = bench.compare(report, document, baseline)
    written, failure = _written(report, output)
    if as_json:
        console.echo(bench.json_text(report), nl=False)
    else:
        from triton_repo_builder.cli.bench_report import print_report

        print_report(report, written)
    if failure:  # not raised: with --json the report is the one object on stdout
        console.print_error(failure)
        return int(failure.code.exit)
    return 0 if all(level.throughput and not level.ended for level in report.levels) else 1


def _written(report: BenchReport, output: Path | None) -> tuple[tuple[Path, ...], TrbError | None]:
    """The files, or why there are none: what was measured is printed in any case."""
    from triton_repo_builder.measure import bench

    try:
        return (bench.write(report, output) if output else ()), None
    except TrbError as error:
        return (), error


def _whole(options: Options) -> Options:
    """The log once, from its first request on: nothing of it is warm-up."""
    from dataclasses import replace
    from math import ceil

    from triton_repo_builder.measure.bench.load import replay

    assert options.replay is not None
    seconds = replay.read(options.replay).seconds + LAST
    windows = ceil(seconds / options.window)
    return replace(options, warmup=0.0, window=seconds / windows, min_windows=windows, max_windows=windows)


def _is_default(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.DEFAULT


def _command_line() -> str:
    import shlex

    return shlex.join(["trb", *sys.argv[1:]])


def _repository(path: Path | None, *, needed: bool) -> Repository | None:
    from triton_repo_builder import repository

    if path is None and not needed and not DEFAULT_REPOSITORY.is_dir():
        return None
    console.recovered(path or DEFAULT_REPOSITORY)
    return repository.read(path or DEFAULT_REPOSITORY)


def _announce(options: Options) -> None:
    """Print the plan and its longest duration on standard error."""
    from triton_repo_builder.measure import bench

    count = sum(1 for _ in bench.shapes(options))
    least = options.warmup + options.min_windows * options.window
    most = bench.limit(options)
    console.echo(
        f"{counted(count, 'level')} of {least:g} to {most / count:g} s: at most "
        f"{int(most) // 60}:{int(most) % 60:02} min, and {options.timeout:g} s for a last answer",
        err=True,
    )


def _run(
    repository: Repository | None,
    engine: engines.Choice,
    addresses: tuple[str | None, str | None, str | None],
    options: Options,
) -> BenchReport:
    from triton_repo_builder.measure import bench

    with _server(repository, engine, *addresses) as (urls, pid), console.progress() as progress:
        return bench.run(urls, repository, options, progress, pid=pid)


@contextmanager
def _server(
    repository: Repository | None,
    engine: engines.Choice,
    url: str | None,
    grpc_url: str | None,
    metrics_url: str | None,
) -> Iterator[tuple[Urls, int | None]]:
    if url is not None:
        yield addresses(url, grpc_url, metrics_url), None
        return
    assert repository is not None
    with engines.running(repository.path, engine) as server:
        yield server.urls, server.pid
