"""``trb plan``: number and cost of machines for a load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, declare, option
from triton_repo_builder.base.option_values import Choice, FilePath, Number, Real, Seconds, Switch, Text
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import Place
from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.measure.options import Slo

if TYPE_CHECKING:
    from triton_repo_builder.measure.capacity.fleet import Load, Offer
    from triton_repo_builder.measure.capacity.predict import Prediction


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The load, the machines, and the simulation."""

    rps: float = field(metadata=declare(Real(1e-6, 1e9), Topic.SEARCH, "Requests per second to serve."))
    slo: Objective = field(
        metadata=declare(Slo(), Topic.SEARCH, "Objective, e.g. p99=500ms.", metavar="P=TIME")
    )
    prices: Path | None = option(
        None, FilePath(), Topic.SEARCH, "Prices of machines, TOML or CSV: adds the cost.", metavar="FILE"
    )
    instance: str = option(
        "", Text(), Topic.SEARCH, "Machine that reports were measured on.", flag="--on", metavar="NAME"
    )
    headroom: float = option(0.2, Real(0, 10), Topic.SEARCH, "Share by which the load may grow.")
    spare: int = option(1, Number(0, 1_000_000), Topic.SEARCH, "Replicas that may be lost.")
    pattern: str | None = option(
        None,
        Choice(("poisson", "bursty", "daily")),
        Topic.SEARCH,
        "Also simulate the fleet, of capacities that trb tune measured; --rps is the peak of a day.",
        flag="--simulate",
    )
    autoscale: float | None = option(
        None,
        Seconds(),
        Topic.SEARCH,
        "Simulate an autoscaler, too; a new replica answers after this time.",
        metavar="TIME",
    )
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the plan as JSON.", flag="--json")


@click.command("plan", cls=declared.TopicCommand)
@click.argument("capacities", nargs=-1, required=True, type=Place(), metavar="FILE...")
@declared.options(options=PlanOptions)
def command(capacities: tuple[Path, ...], options: PlanOptions) -> int:
    """Compute how many replicas (machines) a load needs and what they cost.

    FILE is a report.json of trb tune or of trb bench --rate, or a CSV of capacities. What does not meet the
    objective is not offered, however cheap it is; the rest is sorted by cost with the reserve, or by replicas
    without --prices. Exit code 1 if nothing meets the objective.

    \b
    Examples:
      trb plan tuned/report.json --rps 500 --slo p99=50ms
      trb plan tuned/report.json --rps 500 --slo p99=50ms --prices prices.toml --on c5.xlarge
      trb plan tuned/report.json --rps 9000 --slo p99=50ms --simulate bursty
      trb plan capacities.csv --rps 500 --slo p99=500ms --prices prices.toml --headroom 0 --spare 0
    """
    from triton_repo_builder.measure.capacity import capacities as readers
    from triton_repo_builder.measure.capacity import fleet
    from triton_repo_builder.measure.capacity import prices as price_files

    pattern, slo = options.pattern, options.slo
    if options.autoscale is not None and pattern is None:
        raise click.UsageError("--autoscale is for a simulation: add --simulate.")
    listed = price_files.read(options.prices) if options.prices else None
    instance = options.instance
    if not instance and listed and len(listed.per_hour) == 1:
        instance = next(iter(listed.per_hour))
    measured = [each for file in capacities for each in readers.read(file, instance, slo)]
    for note in dict.fromkeys(f"{each.source}: {note}" for each in measured for note in each.notes):
        console.note(note)
    load = fleet.Load(rps=options.rps, objective=slo, headroom=options.headroom, spare=options.spare)
    offers = fleet.offers(measured, listed, load)
    simulated = _simulate(offers, load, pattern, options.autoscale) if pattern else []
    if options.as_json:
        _print_json(offers, load, simulated)
    else:
        currency = listed.currency if listed else ""
        _print(offers, load, currency)
        if pattern:
            best = next(offer for offer in offers if offer.capacity.service)
            _print_simulation(simulated, pattern, best, load)
            console.echo(_verdict(simulated, pattern, best, load, currency))
    return 0 if any(offer.meets for offer in offers) else 1


Simulated = tuple[str, "Prediction"]


def _simulate(offers: Sequence[Offer], load: Load, pattern: str, autoscale: float | None) -> list[Simulated]:
    """Simulations of the best offer with service times: planned replicas, one fewer, the minimum."""
    from triton_repo_builder.base.errors import Code, TrbError
    from triton_repo_builder.measure.capacity import predict
    from triton_repo_builder.measure.capacity.arrivals import Autoscaling

    best = next((offer for offer in offers if offer.capacity.service), None)
    if best is None or best.capacity.service is None:
        raise TrbError(
            Code.USAGE,
            "no capacity has the time of each batch size, which a simulation needs",
            remedy="plan with the report.json of 'trb tune --output DIR'",
        )
    service = best.capacity.service
    scenario = predict.Scenario(pattern=pattern, rps=load.rps)
    runs: list[Simulated] = [("with reserve", predict.predict(service, scenario, best.reserved))]
    if best.reserved > 1:
        runs.append(("one replica lost", predict.predict(service, scenario, best.reserved - 1)))
    runs.append(("fewest that meet it", predict.fewest(service, scenario, load.objective)))
    if autoscale is not None:
        scaled = predict.Scenario(pattern=pattern, rps=load.rps, scaling=Autoscaling(delay=autoscale))
        runs.append((f"autoscaled, {autoscale:g} s late", predict.predict(service, scaled, best.reserved)))
    return runs


Column = tuple[str, "Callable[[Offer], str]"]


def _print(offers: Sequence[Offer], load: Load, currency: str) -> None:
    meeting = [offer for offer in offers if offer.meets]
    failing = [offer for offer in offers if not offer.meets]
    columns = _columns(offers, load, currency)
    meet = f"{len(meeting)} of {len(offers)} meet it if requests come evenly"
    console.echo(f"{load.rps:g} requests/s, {load.objective}: {meet}")
    console.echo("replicas: load / requests/s of one, rounded up")
    if load.headroom or load.spare:
        console.echo(
            f"with reserve: enough for {load.headroom:.0%} more load, and for the load with {load.spare} lost"
        )
    for title, group in (("", meeting), ("not offered, because they do not meet the objective:", failing)):
        if not group:
            continue
        if title:
            console.echo(title)
        names = [name for name, _ in columns]
        rows = [[text(offer) for _, text in columns] for offer in group]
        console.table(names, rows, right=[name for name in names if name not in ("name", "machine")])
    if any(not offer.capacity.percentile for offer in offers):
        console.note(
            f"latency_ms does not say which percentile it is; it was taken for {load.objective.percentile}"
        )


def _columns(offers: Sequence[Offer], load: Load, currency: str) -> list[Column]:
    """Headers and cells; machines and prices only if there are some."""
    machines = any(offer.capacity.instance for offer in offers)
    columns: list[tuple[str, Callable[[Offer], str], bool]] = [
        ("name", lambda offer: offer.capacity.name, True),
        ("machine", lambda offer: offer.capacity.instance, machines),
        ("requests/s\nof one", lambda offer: f"{offer.capacity.per_second:.1f}", True),
        (f"{load.objective.percentile} of one,\nms", lambda offer: _ms(offer.capacity.latency_ms), True),
        ("replicas", lambda offer: f"{offer.replicas:,}", True),
        (f"{currency} per hour", lambda offer: _cost(offer.per_hour), bool(currency)),
        ("replicas\nwith reserve", lambda offer: f"{offer.reserved:,}", True),
        (f"{currency} per hour\nwith reserve", lambda offer: _cost(offer.reserved_per_hour), bool(currency)),
        (
            f"{currency} per million\nrequests",
            lambda offer: _cost(offer.reserved_per_million),
            bool(currency),
        ),
    ]
    return [(name, text) for name, text, shown in columns if shown]


def _ms(value: float) -> str:
    import math

    if not math.isfinite(value):
        return "did not keep up"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _cost(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _print_simulation(runs: Sequence[Simulated], pattern: str, best: Offer, load: Load) -> None:
    console.echo(
        f"simulated: replicas of '{best.capacity.name}' under {pattern} load, each request to one of them "
        "by chance"
    )
    numbers = [
        "replicas",
        "replicas\nin the mean",
        "used\nin the mean",
        "used in the\nbusiest minute",
        "p50 ms",
        "p95 ms",
        "p99 ms",
    ]
    rows = [
        [
            name,
            f"{run.replicas:,}",
            f"{run.mean_replicas:,.1f}",
            f"{run.utilization:.0%}",
            f"{run.busiest:.0%}",
            *(f"{value:.1f}" for value in (run.p50, run.p95, run.p99)),
            "yes" if _holds(run, load) else "no",
        ]
        for name, run in runs
    ]
    console.table(["fleet", *numbers, f"meets\n{load.objective}"], rows, right=numbers)


def _holds(run: Prediction, load: Load) -> bool:
    return run.of(load.objective) <= load.objective.ms


WHY = {
    "poisson": "requests come at random",
    "bursty": "for some seconds requests come three times as fast",
    "daily": "at the peak of the day requests come at random",
}
"""Why a fleet for even requests may be too small, by pattern."""


def _verdict(runs: Sequence[Simulated], pattern: str, best: Offer, load: Load, currency: str) -> str:
    """Number of replicas to plan with, and why the two tables differ if they do."""
    fleets, objective = dict(runs), load.objective
    planned, fewest = fleets["with reserve"], fleets["fewest that meet it"]
    if not _holds(fewest, load):
        return (
            f"no number of replicas meets {objective} under this load: {fewest.replicas:,} of them have "
            f"{objective.percentile} {fewest.of(objective):.1f} ms"
        )
    needed = max(best.reserved, fewest.replicas + load.spare)
    cost = "" if best.price is None else f", {_cost(needed * best.price)} {currency} per hour"
    minimum = f"the fewest that meet {objective} under {pattern} load: {fewest.replicas:,}"
    if needed == best.reserved:
        return f"plan with {needed:,} replicas{cost}: both tables agree\n{minimum}"
    advice = f"plan with {needed:,} replicas{cost}, not {best.reserved:,}"
    if _holds(planned, load):
        return f"{advice}: {best.reserved:,} meet it, but not with {load.spare} lost\n{minimum}"
    return (
        f"{advice}: the first table is for requests that come evenly, but {WHY[pattern]}\n"
        f"{minimum}, plus {load.spare} that may be lost; {planned.replicas:,} replicas have "
        f"{objective.percentile} {planned.of(objective):.1f} ms"
    )


def _print_json(offers: Sequence[Offer], load: Load, simulated: Sequence[Simulated]) -> None:
    import json
    import math

    document = {
        "rps": load.rps,
        "objective": vars(load.objective),
        "headroom": load.headroom,
        "spare": load.spare,
        "offers": [
            {
                "name": offer.capacity.name,
                "instance": offer.capacity.instance,
                "per_second": offer.capacity.per_second,
                "latency_ms": offer.capacity.latency_ms if math.isfinite(offer.capacity.latency_ms) else None,
                "percentile": offer.capacity.percentile,
                **{key: value for key, value in vars(offer).items() if key != "capacity"},
            }
            for offer in offers
        ],
        "simulated": [{"fleet": name, **vars(run)} for name, run in simulated],
    }
    console.echo(json.dumps(document, indent=1))
