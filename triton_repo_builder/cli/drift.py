"""``trb drift``: a server's texts and answers beside the reference of the build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import FilePath, Seconds, Switch, Text
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import METRICS_PAGE, Server, addresses
from triton_repo_builder.cli.usage_errors import Misuse

if TYPE_CHECKING:
    from rich.text import Text as Styled

    from triton_repo_builder.repository import Repository
    from triton_repo_builder.run.observe.drift import Comparison
    from triton_repo_builder.run.observe.exposition import Page
    from triton_repo_builder.run.observe.snapshot import Snapshot

Endpoints = Mapping[tuple[str, str], Sequence[str]]
"""The endpoints of each model's version."""
BAR = 24
"""Columns of a bar of 100 %."""
MOST_BUCKETS = 20
"""Labels whose bars are printed; --json has all."""
COLOURS = {"drifted": "red", "moderate": "yellow", "stable": "green"}
NAMES = ("reference", "now")
PLOTS = (".png", ".svg", ".pdf")
SHOWN = 5
"""Endpoints that a message names."""


@dataclass(frozen=True, kw_only=True)
class DriftServer(Server):
    """A running server, with its metrics, or a Prometheus that scrapes it."""

    metrics_url: str | None = option(
        None,
        Text(),
        Topic.RUNNING,
        "Its metrics page.",
        default=METRICS_PAGE,
    )
    prometheus: str | None = option(
        None, Text(), Topic.RUNNING, "Ask this Prometheus instead of a server.", metavar="URL"
    )
    repo: Path | None = option(
        None,
        FilePath(file=False),
        Topic.RUNNING,
        "Compare with the references of this repository, not with those that the server exports.",
        metavar="DIR",
    )


@dataclass(frozen=True, kw_only=True)
class DriftOptions:
    """The time that is compared, and the output."""

    seconds: float | None = option(
        None,
        Seconds(),
        Topic.MEASUREMENT,
        "Count the texts of this time from now on, e.g. 60s.",
        default="all since the server was started",
        flag="--for",
        metavar="TIME",
    )
    window: float = option(
        3600.0,
        Seconds(),
        Topic.MEASUREMENT,
        "With --prometheus: count the texts of this time until now, e.g. 6h.",
        default="1h",
        metavar="TIME",
    )
    fail: bool = option(
        False, Switch(), Topic.CHECKS, "Exit 1 if anything has drifted, or there is no verdict on anything."
    )
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print a JSON list of comparisons.", flag="--json")
    plot: Path | None = option(
        None,
        FilePath(folder=False),
        Topic.OUTPUT,
        "Draw the distributions, as .png, .svg or .pdf.",
        metavar="FILE.png",
    )


@click.command("drift", cls=declared.TopicCommand)
@declared.options(server=DriftServer, options=DriftOptions)
def command(server: DriftServer, options: DriftOptions) -> int:
    """Compare a server's texts and answers with the reference of the build.

    Token lengths, the share of unknown tokens, labels and confidence, each by the population stability index
    (PSI): below 0.1 stable, above 0.25 drifted. A few texts get no verdict, for their PSI is large by chance.
    The reference comes from trb build --reference FILE.

    \b
    Examples:
      trb drift
      trb drift --url http://localhost:8000 --for 60s
      trb drift --url http://localhost:8000 --plot drift.png --fail
      trb drift --prometheus http://localhost:9090 --window 6h
    """
    import json

    if options.plot:
        from triton_repo_builder.measure.bench.report import files, png

        if options.plot.suffix.lower() not in PLOTS:
            raise Misuse(
                f"'{options.plot.name}' is not a picture's name",
                where="--plot",
                remedy="let it end in .png, .svg or .pdf",
            )
        files.need(png.NEEDS, "--plot")
    stored = _repository(server.repo)
    if server.prometheus is not None:
        comparisons, endpoints = _asked(server, options, stored)
    else:
        comparisons, endpoints = _measured(server, options, stored)
    if options.plot:
        _plot(comparisons, options.plot)
    if options.as_json:
        listed = [_as_json(each, endpoints.get((each.model, each.version), ())) for each in comparisons]
        console.echo(json.dumps(listed, indent=1, ensure_ascii=False))
    else:
        _print(comparisons, endpoints)
    return _result(comparisons) if options.fail else 0


def _result(comparisons: Sequence[Comparison]) -> int:
    """Exit code with --fail. What has no verdict is named: a job of every hour must not call it success."""
    from triton_repo_builder.base.errors import Code, TrbError
    from triton_repo_builder.base.text import some
    from triton_repo_builder.run.observe import drift

    unjudged = [each for each in comparisons if each.verdict in (drift.FEW_TEXTS, drift.SMALL_REFERENCE)]
    if len(unjudged) < len(comparisons):
        if unjudged:
            listed = some([f"{each.metric} of {each.model}" for each in unjudged], SHOWN)
            console.note(f"no verdict on {listed}: this does not count for --fail")
        return int(any(each.verdict == drift.DRIFTED_WORD for each in comparisons))
    error = TrbError(
        Code.NOT_COMPARED,
        "no verdict on anything, so --fail cannot tell whether it has drifted: "
        + ", ".join(sorted({each.verdict for each in comparisons})),
        remedy="wait for more texts, or build with --reference FILE; 'trb smoke --live' says whether the "
        "answers still equal the recorded ones",
    )
    console.print_error(error)  # not raised: with --json the comparisons are the one object on stdout
    return int(error.code.exit)


def _repository(folder: Path | None) -> Repository | None:
    """The repository of --repo. Raises ``TrbError`` for a folder without a model."""
    from triton_repo_builder import repository
    from triton_repo_builder.base.errors import Code, TrbError

    stored = repository.read(folder) if folder is not None else None
    if stored is not None and not any(model.stated for model in stored.models):
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            "holds no model",
            where=str(folder),
            remedy="name a model repository; make one with 'trb build'",
        )
    return stored


def _asked(
    server: DriftServer, options: DriftOptions, stored: Repository | None
) -> tuple[Sequence[Comparison], Endpoints]:
    """Comparisons by a Prometheus. Raises ``TrbError``."""
    from triton_repo_builder.run.observe import drift, prometheus

    if server.url or server.metrics_url or options.seconds is not None:
        raise click.UsageError("--prometheus goes without --url, --metrics-url and --for.")
    assert server.prometheus is not None
    page = prometheus.page(server.prometheus, options.window)
    comparisons = _compared(page, None, stored)
    drift.need(comparisons, page, server.prometheus)
    return comparisons, _stored_endpoints(stored) if stored else {}


def _measured(
    server: DriftServer, options: DriftOptions, stored: Repository | None
) -> tuple[Sequence[Comparison], Endpoints]:
    """Comparisons by the metrics page of a server. Raises ``TrbError``."""
    import time

    from triton_repo_builder.run.observe import drift, snapshot

    if not declared.is_default("window"):
        raise click.UsageError("--window goes with --prometheus; --for is the time to count on a server.")
    if options.seconds == 0:
        raise Misuse(
            "'0s' is no time for texts to come",
            where="--for",
            remedy="write e.g. 60s; leave it out for all texts so far",
        )
    urls = addresses(server.reached(), None, server.metrics_url)
    observer = snapshot.Observer(urls)
    before = None
    if options.seconds is not None:
        before = _answered(observer.take()).page
        with console.status() as progress:
            progress(f"counting for {options.seconds:g} s")
            time.sleep(options.seconds)
    now = _answered(observer.take())
    references = _compared(now.page, before, stored)
    comparisons = tuple(
        each
        for each in references
        # The page keeps the series of a model that was unloaded.
        if not now.counters or (each.model, each.version) in now.counters
    )
    if stored and references and not comparisons:
        _refuse_others(stored, references, now)
    drift.need(comparisons, now.page, str(server.repo or urls.metrics))
    return comparisons, _served_endpoints(now)


def _refuse_others(stored: Repository, references: Sequence[Comparison], now: Snapshot) -> NoReturn:
    """Raise ``TrbError`` NOT_FOUND for a repository whose references are of other endpoints."""
    from triton_repo_builder.base.errors import Code, TrbError
    from triton_repo_builder.base.text import some

    models = {(each.model, each.version) for each in references}
    endpoints = _stored_endpoints(stored)
    others = {(name, model[1]) for model in models for name in endpoints.get(model, model[:1])}
    served = {(name, version) for name in now.endpoints for version in now.versions(name)}
    listed, loaded = (
        some([f"{name} version {version}" for name, version in sorted(each)], SHOWN)
        for each in (others, served)
    )
    raise TrbError(
        Code.NOT_FOUND,
        f"has references of {listed}; the server {now.urls.http} serves {loaded or 'nothing'}",
        where=str(stored.path),
        remedy="name the repository of that server with --repo, or leave --repo out",
    )


def _compared(page: Page, before: Page | None, stored: Repository | None) -> tuple[Comparison, ...]:
    from triton_repo_builder.run.observe import drift
    from triton_repo_builder.run.observe.exposition import Page

    return drift.compare(page, before, Page(drift.of_repository(stored)) if stored else None)


def _answered(taken: Snapshot) -> Snapshot:
    """The snapshot. Raises ``TrbError`` UNREACHABLE for one without metrics."""
    from triton_repo_builder.base.errors import Code, TrbError

    if not taken.answers:
        raise TrbError(
            Code.UNREACHABLE,
            taken.problem,
            where=taken.urls.http,
            remedy="start it (trb serve), or name another with --url",
        )
    if taken.metrics_problem:
        raise TrbError(
            Code.UNREACHABLE,
            f"no metrics: {taken.metrics_problem}",
            where=taken.urls.http,
            remedy="name the page with --metrics-url; a server started with --allow-metrics=false has none",
        )
    return taken


def _served_endpoints(taken: Snapshot) -> dict[tuple[str, str], list[str]]:
    endpoints: dict[tuple[str, str], list[str]] = {}
    for endpoint in taken.endpoints:
        for version in taken.versions(endpoint):
            for member in taken.members(endpoint, version):
                names = endpoints.setdefault(member, [])
                names += [endpoint] if endpoint not in names else []
    return endpoints


def _stored_endpoints(stored: Repository) -> dict[tuple[str, str], list[str]]:
    from triton_repo_builder.repository import composition

    endpoints: dict[tuple[str, str], list[str]] = {}
    for endpoint in stored.endpoints:
        for name in composition.members((endpoint.name,), stored.steps_of):
            model = stored.model(name)
            for version in model.versions if model else ():
                endpoints.setdefault((name, str(version)), []).append(endpoint.name)
    return endpoints


def _as_json(comparison: Comparison, endpoints: Sequence[str]) -> dict[str, Any]:
    from math import isinf

    reference_texts = comparison.reference_texts
    return {
        "endpoints": list(endpoints),
        "model": comparison.model,
        "version": comparison.version,
        "metric": comparison.metric,
        "verdict": comparison.verdict,
        "psi": comparison.psi,
        "texts": comparison.texts,
        "texts_needed": comparison.needed,
        "reference_texts": None if isinf(reference_texts) else round(reference_texts),
        "reference": dict(comparison.reference),
        "now": dict(comparison.current),
    }


def _print(comparisons: Sequence[Comparison], endpoints: Endpoints) -> None:
    rows: list[tuple[str | Styled, ...]] = [
        (
            ", ".join(endpoints.get((each.model, each.version), ())),
            each.model,
            each.version,
            each.metric,
            f"{each.texts:,}",
            "" if each.psi is None else f"{each.psi:.2f}",
            console.cell(_verdict(each), COLOURS.get(each.verdict, "")),
        )
        for each in comparisons
    ]
    columns = ("endpoint", "model", "version", "metric", "texts", "PSI", "verdict")
    # A Prometheus does not say which endpoints a model belongs to.
    kept = slice(0 if endpoints else 1, None)
    console.table(
        columns[kept], [row[kept] for row in rows], right=("texts", "PSI"), whole=("model", "metric")
    )
    for each in comparisons:
        if each.texts:
            _print_bars(each)


def _verdict(comparison: Comparison) -> str:
    from triton_repo_builder.run.observe import drift

    if comparison.verdict == drift.FEW_TEXTS:
        return f"{comparison.verdict}, {comparison.needed} are needed"
    if comparison.verdict == drift.SMALL_REFERENCE:
        return f"{comparison.verdict} ({comparison.reference_texts:g} texts): build with --reference FILE"
    return comparison.verdict


def _print_bars(comparison: Comparison) -> None:
    """Both distributions, a bucket a row."""
    console.echo(
        console.style(f"{comparison.metric} of {comparison.model} version {comparison.version}", bold=True)
    )
    pairs = _pairs(comparison)
    shown = sorted(pairs, key=lambda name: -max(pairs[name]))[:MOST_BUCKETS]
    rows = [(name, *map(_bar, pair)) for name, pair in pairs.items() if name in shown]
    console.table(("", *NAMES), rows, whole=("", *NAMES))


def _bar(share: float) -> str:
    return f"{100 * share:5.1f} % {'█' * round(share * BAR)}"


def _pairs(comparison: Comparison) -> dict[str, tuple[float, float]]:
    """Share of each bucket in the reference and now; of a histogram from the first to the last with texts."""
    from triton_repo_builder.repository import reference

    def pair(name: str) -> tuple[float, float]:
        return comparison.reference.get(name, 0.0), comparison.current.get(name, 0.0)

    if comparison.metric not in reference.BOUNDS:
        return {name: pair(name) for name in (*comparison.reference, *comparison.current)}
    names = reference.buckets(comparison.metric)
    filled = [place for place, name in enumerate(names) if max(pair(name)) > 0] or [0]
    return {
        f"> {names[-2]}" if name == reference.INFINITE else f"≤ {name}": pair(name)
        for name in names[filled[0] : filled[-1] + 1]
    }


def _plot(comparisons: Sequence[Comparison], file: Path) -> None:
    from triton_repo_builder.base import files, user_file
    from triton_repo_builder.measure.bench.report import png

    panels = {
        f"{each.metric} of {each.model} version {each.version}: {each.verdict}": _pairs(each)
        for each in comparisons
    }
    try:
        user_file.write(file, png.paired(panels, NAMES, file.suffix.lower()[1:]))
    except OSError as error:
        raise files.explain(error, file, how="with --plot", kept="nothing was written") from None
