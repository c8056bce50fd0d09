"""``trb bench``: load a server and print the measurements."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.base.option_values import FilePath, Seconds, Share, Switch, Text
from triton_repo_builder.base.text import counted
from triton_repo_builder.cli import console, declared, engines
from triton_repo_builder.cli.options import Address, Place, addresses
from triton_repo_builder.measure.options import BenchOptions

if TYPE_CHECKING:
    from triton_repo_builder.measure.bench import BenchReport
    from triton_repo_builder.repository import Repository
    from triton_repo_builder.run.client import Urls

LAST = 0.5
"""Seconds after the end of a log in which late answers still count."""


@dataclass(frozen=True, kw_only=True)
class BenchAddress(Address):
    """A server that runs already, with its metrics."""

    metrics_url: str | None = option(
        None,
        Text(),
        Topic.RUNNING,
        "Its metrics page, for GPUs.",
        default="as for gRPC, the url's port + 2; 8002 for a url without a port",
    )

    against: Path | None = option(
        None,
        FilePath(file=False),
        Topic.RUNNING,
        "Serve this repository, too, and measure both in turns at each level.",
        metavar="DIR",
    )

    def checked(self) -> BenchAddress:
        """The address. Raises ``UsageError``."""
        if self.url is not None and self.against is not None:
            raise click.UsageError("--against starts both servers itself: leave --url out.")
        if self.url is None and (self.grpc_url or self.metrics_url):
            raise click.UsageError("--grpc-url and --metrics-url go with --url.")
        return self

    def urls(self) -> Urls:
        """All addresses. Raises ``BadParameter``."""
        return addresses(self.url or "", self.grpc_url, self.metrics_url)


@dataclass(frozen=True, kw_only=True)
class LevelTime:
    """Time of a level, in place of the number of its windows."""

    duration: float | None = option(
        None,
        Seconds(),
        Topic.MEASUREMENT,
        "Measure each level for this long, in windows; in place of --min-windows and --max-windows.",
        default="until three windows agree",
    )

    def checked(self) -> LevelTime:
        """The time. Raises ``UsageError``."""
        if self.duration is None:
            return self
        if not self.duration:
            raise click.UsageError("--duration: nothing is measured in no time; write for example 30s.")
        for other in ("min_windows", "max_windows"):
            if not declared.is_default(other):
                name = other.replace("_", "-")
                raise click.UsageError(
                    f"--duration and --{name} both set the time of a level: use one of them."
                )
        if not declared.is_default("replay"):
            raise click.UsageError("--replay takes as long as its log: leave --duration out.")
        return self

    def of(self, options: BenchOptions) -> BenchOptions:
        """The options, with as many windows as fill the time."""
        from math import ceil

        if self.duration is None:
            return options
        windows = ceil(round(self.duration / options.window, 6))  # 0.7 s in windows of 0.1 s are 7
        return replace(options, min_windows=windows, max_windows=windows)


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Destination of the report, and its comparison."""

    output: Path | None = option(
        None,
        FilePath(file=False),
        Topic.OUTPUT,
        "Write report.json, .csv, .html, latency.png and throughput.png.",
        also=("-o",),
        metavar="DIR",
    )
    baseline: Path | None = option(
        None, FilePath(), Topic.OUTPUT, "report.json to compare with.", metavar="FILE"
    )
    max_regression: float | None = option(
        None,
        Share(),
        Topic.OUTPUT,
        "Fail if a level is worse than the reference (--baseline, --against) by more than this share: lower "
        "throughput or higher p99.",
        metavar="SHARE",
    )
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the report as JSON.", flag="--json")

    def checked(self) -> ReportOptions:
        """The options. Raises ``UsageError``."""
        if self.max_regression is not None and not 0 <= self.max_regression <= 1:
            raise click.UsageError(
                f"--max-regression: must be from 0 to 1, not {self.max_regression:g}; write for example 20%."
            )
        return self


@click.command("bench", cls=declared.TopicCommand)
@click.argument("repo", required=False, type=Place())
@declared.options(
    address=BenchAddress,
    engine=engines.EngineOptions,
    options=BenchOptions,
    time=LevelTime,
    output=ReportOptions,
)
def command(
    repo: Path | None,
    address: BenchAddress,
    engine: engines.EngineOptions,
    options: BenchOptions,
    time: LevelTime,
    output: ReportOptions,
) -> int:
    """Load an endpoint and report throughput, latency, failures, batching and CPU.

    REPO is the model repository (default: model_repository). Sends a mix of text lengths, as real traffic
    has; each level is warmed up and measured in windows until three agree. Failed requests are counted by
    kind and stop nothing; exit code 1 only if a level had no answer at all, the server ended, or a level is
    slower than --max-regression allows.

    \b
    Examples:
      trb bench                                      start a server on ./model_repository and load it
      trb bench --url http://localhost:8000          load a server that runs
      trb bench --concurrency 16 --protocol grpc,http --output before
      trb bench --concurrency 16 --baseline before/report.json
      trb bench before --against after               two repositories, in turns on this machine
      trb bench before --against after --max-regression 20%
      trb bench --concurrency 16 --duration 1m       each level for a minute
      trb bench --rate 50,100,200                    open loop: arrivals do not wait for answers
      trb bench --concurrency 1 --lengths 32,64,128,256
      trb bench --rate 50,100,200 --slo p99=50ms     also count what was answered in time
      trb bench --replay yesterday.jsonl             {"at": 0.031, "text": "..."} per line
    """
    from triton_repo_builder.measure import bench
    from triton_repo_builder.measure.bench.options import check

    address.send_key()
    options = replace(options, command=declared.command_line())
    if declared.is_default("concurrency") and (options.rates or options.replay):
        options = replace(options, concurrency=())
    if declared.is_default("max_windows"):
        options = replace(options, max_windows=max(options.max_windows, options.min_windows))
    check(options)
    if output.max_regression is not None and not (output.baseline or address.against):
        raise click.UsageError("--max-regression needs --baseline FILE or --against DIR to compare with.")
    options = time.of(options)
    options = _whole(options) if options.replay else options
    document = bench.load_baseline(output.baseline) if output.baseline else None
    if output.output:
        bench.open_folder(output.output)
    repository = engines.repository(repo, needed=address.url is None)
    other = engines.repository(address.against, needed=True) if address.against else None
    if repository and other and repository.path.resolve() == other.path.resolve():
        raise click.UsageError("--against names the same repository.")
    _announce(options, 2 if other else 1)
    report = _run(repository, other, address, engine, options)
    if document is not None and output.baseline is not None:
        report = bench.compare(report, document, output.baseline)
    if output.max_regression is not None:
        report = bench.judge_regressions(report, output.max_regression)
    written, failure = _written(report, output.output)
    if output.as_json:
        console.echo(bench.json_text(report), nl=False)
    else:
        from triton_repo_builder.cli.bench_report import print_report

        print_report(report, written)
    slower = bench.regression_error(report.verdict) if report.verdict else None
    failures = [each for each in (failure, slower) if each]
    for each in failures:  # not raised: with --json the report is the one object on stdout
        console.print_error(each)
    if failures:
        return int(failures[0].code.exit)
    return 0 if all(level.throughput and not level.ended for level in report.levels) else 1


def _written(report: BenchReport, output: Path | None) -> tuple[tuple[Path, ...], TrbError | None]:
    """Files of the report, or the reason for none: the measurements are printed in any case."""
    from triton_repo_builder.measure import bench

    try:
        return (bench.write(report, output) if output else ()), None
    except TrbError as error:
        return (), error


def _whole(options: BenchOptions) -> BenchOptions:
    """The whole log once, without a warm-up."""
    from math import ceil

    from triton_repo_builder.measure.bench.load import replay

    assert options.replay is not None
    seconds = replay.read(options.replay).seconds + LAST
    windows = ceil(seconds / options.window)
    return replace(options, warmup=0.0, window=seconds / windows, min_windows=windows, max_windows=windows)


def _announce(options: BenchOptions, variants: int) -> None:
    """Print the plan and its longest duration on standard error."""
    from triton_repo_builder.measure import bench

    count = sum(1 for _ in bench.shapes(options)) * variants
    least = options.warmup + options.min_windows * options.window
    most = bench.limit(options) * variants
    console.echo(
        f"{counted(count, 'level')} of {least:g} to {most / count:g} s: at most "
        f"{int(most) // 60}:{int(most) % 60:02} min, and {options.timeout:g} s for a last answer",
        err=True,
    )


def _run(
    repository: Repository | None,
    other: Repository | None,
    address: Address,
    engine: engines.EngineOptions,
    options: BenchOptions,
) -> BenchReport:
    from triton_repo_builder.measure import bench
    from triton_repo_builder.measure.tune import live

    for each in (repository, other):
        if each is not None and address.url is None:  # a server takes a while to start
            live.needed(each, options.endpoint, ())
    with (
        engines.reached(repository, address, engine) as (urls, pid),
        nullcontext() if other is None else engines.running(other.path, engine) as second,
        console.progress() as progress,
    ):
        if repository is None or other is None or second is None:
            return bench.run(urls, repository, options, progress, pid=pid)
        variants = [
            bench.Variant(name=str(local.path), urls=where, repository=local, pid=process)
            for local, where, process in ((repository, urls, pid), (other, second.urls, second.pid))
        ]
        return bench.run_variants(variants, options, progress)
