"""``trb top``: the live view of one or many servers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.errors import Code, Exit, TrbError
from triton_repo_builder.base.option_values import Names, Real, Switch
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import DEFAULT_URL, METRICS_PAGE, addresses

if TYPE_CHECKING:
    from triton_repo_builder.run.observe.snapshot import Observer
    from triton_repo_builder.run.observe.window import Window


@dataclass(frozen=True, kw_only=True)
class TopOptions:
    """How often servers are read, and how the numbers are shown."""

    metrics_urls: tuple[str, ...] = option(
        (),
        Names(),
        Topic.RUNNING,
        "Metrics page of a server; once for each URL, in their order.",
        flag="--metrics-url",
        metavar="URL",
        default=METRICS_PAGE,
    )
    interval: float = option(
        2.0, Real(0.2, 3600), Topic.MEASUREMENT, "Time between two readings.", metavar="SECONDS"
    )
    once: bool = option(False, Switch(), Topic.OUTPUT, "Print one table after one interval.")
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "With --once: print JSON.", flag="--json")

    def checked(self) -> TopOptions:
        """The options. Raises ``UsageError``."""
        if self.as_json and not self.once:
            raise click.UsageError("--json goes with --once.")
        return self


@click.command("top", cls=declared.TopicCommand)
@click.argument("urls", nargs=-1, metavar="[URL]...")
@declared.options(options=TopOptions)
def command(urls: tuple[str, ...], options: TopOptions) -> int:
    """Show live what running servers do, by endpoint: requests/s, latency, queue, batches, failures, texts.

    Without a URL: the servers that trb serve --detach started. Any tritonserver works; - is what it does not
    tell. p50 and p99 need trb serve --percentiles, or tritonserver --metrics-config=summary_latencies=true.

    \b
    Examples:
      trb top
      trb top http://gpu-1:8000 http://gpu-2:8000
      trb top http://gpu-1:8000 --metrics-url http://gpu-1:9102/metrics
      trb top --once                                 one table, for a log or a mail
      trb top --once --json | jq '.servers[].endpoints[] | {endpoint, requests_per_s}'
    """
    servers = _servers(urls, options.metrics_urls)
    if options.once:
        return _once(servers, options)
    _check_terminal()
    _answering(_windows(servers, 0.0))
    from triton_repo_builder.cli.live.app import TopApp

    view = TopApp(servers, options.interval)
    view.run()
    if view.error:
        raise view.error
    return int(Exit.BUG) if view.return_code else 0  # it has printed its traceback


def _servers(urls: Sequence[str], metrics_urls: Sequence[str]) -> dict[str, Observer]:
    """Observers of the servers by the names that tables show."""
    from triton_repo_builder.run.serve.background import registry

    if len(metrics_urls) > len(urls):
        raise click.UsageError("--metrics-url goes with a URL, once for each.")
    if urls:
        pages = [*metrics_urls, *[None] * len(urls)]
        listed = [_observer(url, page) for url, page in zip(urls, pages, strict=False)]
        return {each.urls.http.split("://", 1)[1].rstrip("/"): each for each in listed}
    running, _ = registry.sweep()
    if running:
        return {server.name: _observer(server.urls["http"]) for server in running}
    return {DEFAULT_URL.split("://", 1)[1]: _observer(DEFAULT_URL)}


def _observer(url: str, page: str | None = None) -> Observer:
    """An observer that looks for the metrics page again while it is away, unless the user named the page."""
    from triton_repo_builder.run.observe.snapshot import Observer

    urls = addresses(url, None, page, option="URL")
    return Observer(urls, locate=None if page else partial(_metrics_page, url))


def _metrics_page(url: str) -> str:
    return addresses(url).metrics


def _check_terminal() -> None:
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise TrbError(
            Code.USAGE,
            "the live view needs a terminal",
            where="trb top",
            remedy="print one table with --once, or --once --json",
        )
    if find_spec("textual") is None:
        raise TrbError(
            Code.ENGINE_MISSING,
            "the live view needs textual, which is not installed",
            where="trb top",
            remedy='pip install "triton_repo_builder[top]", or use --once',
        )


def _windows(servers: Mapping[str, Observer], interval: float) -> dict[str, Window]:
    """All servers between two readings, side by side: a slow one delays no other."""
    from concurrent.futures import ThreadPoolExecutor

    from triton_repo_builder.run.observe.window import between

    def window(observer: Observer) -> Window:
        before = observer.take()
        if not interval or not before.answers:
            return between(before, before)
        time.sleep(interval)
        return between(before, observer.take())

    with ThreadPoolExecutor(len(servers)) as pool:
        return dict(zip(servers, pool.map(window, servers.values()), strict=True))


def _answering(windows: dict[str, Window]) -> None:
    """Raise ``TrbError`` UNREACHABLE if no server answers."""
    silent = [window.after for window in windows.values() if not window.after.answers]
    if len(silent) < len(windows):
        return
    listed = [(each.urls.http, f"{each.state}: {each.problem}") for each in silent]
    raise TrbError(
        Code.UNREACHABLE,
        "no tritonserver answers there"
        + (
            f" ({listed[0][1]})"
            if len(listed) == 1
            else "".join(f"\n{url}: {words}" for url, words in listed)
        ),
        where=listed[0][0] if len(listed) == 1 else "",
        remedy="name the URL of its HTTP port (8000 by default), or start one: trb serve --detach",
    )


def _once(servers: Mapping[str, Observer], options: TopOptions) -> int:
    windows = _windows(servers, options.interval)
    _answering(windows)
    if options.as_json:
        from triton_repo_builder.run.observe.document import document

        console.echo(json.dumps(document(windows.values(), options.interval), ensure_ascii=False))
        return 0
    from triton_repo_builder.cli.live import listing

    for name, window in windows.items():
        console.echo(f"{name}: {' · '.join(listing.facts(window))}")
    rows = listing.ordered(listing.rows(windows.items()), "requests_per_s", descending=True)
    columns = listing.columns(rows, len(servers))
    right = [column.title for column in columns if column.name not in listing.TEXTS]
    whole = [column.title for column in columns if column.name in ("server", "endpoint", "version")]
    cells = [[column.text(row) for column in columns] for row in rows]
    if rows:
        titles, piped = [column.title for column in columns], not sys.stdout.isatty()
        console.table(titles, cells, right=right, whole=whole, natural=piped)
    for row in rows:
        if row.reason:
            console.note(f"{row.key.endpoint} {row.key.version} is {row.state}: {row.reason}")
    for name, window in windows.items():
        for problem in listing.problems(window.after):
            console.note(f"{name}: {problem}")
    return 0
