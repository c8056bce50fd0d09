"""``trb plan``: number and cost of machines for a load."""

from __future__ import annotations

from collections.abc import Sequence
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
    from triton_repo_builder.measure.capacity.capacities import Capacity
    from triton_repo_builder.measure.capacity.fleet import Load, Offer
    from triton_repo_builder.measure.capacity.predict import Prediction


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The load, the machines, and the simulation."""

    rps: float = field(metadata=declare(Real(1e-6, 1e9), Topic.SEARCH, "Requests per second to serve."))
    slo: Objective = field(
        metadata=declare(Slo(), Topic.SEARCH, "Objective, e.g. p99=500ms.", metavar="P=TIME")
    )
    prices: Path = field(metadata=declare(FilePath(), Topic.SEARCH, "Prices of machines: TOML or CSV."))
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
    """Compute how many replicas a load needs and what they cost, for each measured or given capacity.

    FILE is a report.json of trb tune or trb bench, or a CSV of capacities. What does not meet the objective
    is not offered, however cheap it is; the rest is sorted by cost with headroom and spare replicas. Exit
    code 1 if nothing meets the objective.

    \b
    Examples:
      trb plan tuned/report.json --rps 500 --slo p99=50ms --prices prices.toml --on c5.xlarge
      trb plan capacities.csv --rps 500 --slo p99=500ms --prices prices.toml --headroom 0 --spare 0
      trb plan tuned/report.json --rps 9000 --slo p99=50ms --prices prices.csv --simulate bursty
    """
    from triton_repo_builder.measure.capacity import capacities as readers
    from triton_repo_builder.measure.capacity import fleet
    from triton_repo_builder.measure.capacity import prices as price_files

    pattern, slo = options.pattern, options.slo
    if options.autoscale is not None and pattern is None:
        raise click.UsageError("--autoscale is for a simulation: add --simulate.")
    listed = price_files.read(options.prices)
    instance = options.instance
    if not instance and len(listed.per_hour) == 1:
        instance = next(iter(listed.per_hour))
    measured = [each for file in capacities for each in readers.read(file, instance, slo)]
    load = fleet.Load(rps=options.rps, objective=slo, headroom=options.headroom, spare=options.spare)
    offers = fleet.offers(measured, listed, load)
    simulated = _simulate(offers, load, pattern, options.autoscale) if pattern else []
    if options.as_json:
        _print_json(offers, load, simulated)
    else:
        _print(offers, load, listed.currency)
        if pattern:
            _print_simulation(simulated, pattern, load)
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


def _print(offers: Sequence[Offer], load: Load, currency: str) -> None:
    meeting = [offer for offer in offers if offer.meets]
    head = ["name", "machine", "req/s each", "latency ms", "replicas", f"{currency}/h"]
    reserve = [
        f"with {load.headroom:.0%} and {load.spare} spare",
        f"{currency}/h then",
        f"{currency}/million",
    ]
    console.echo(f"{load.rps:g} requests/s, {load.objective}: {len(meeting)} of {len(offers)} meet it")
    if meeting:
        console.table([*head, *reserve], [_row(offer) for offer in meeting], right=[*head[2:], *reserve])
    failing = [offer for offer in offers if not offer.meets]
    if failing:
        console.echo("not offered, because they do not meet the objective:")
        console.table([*head, *reserve], [_row(offer) for offer in failing], right=[*head[2:], *reserve])
    if any(not offer.capacity.percentile for offer in offers):
        console.note(
            f"latency_ms does not say which percentile it is; it was taken for {load.objective.percentile}"
        )


def _row(offer: Offer) -> list[str]:
    capacity: Capacity = offer.capacity
    return [
        capacity.name,
        capacity.instance,
        f"{capacity.per_second:.1f}",
        f"{capacity.latency_ms:.0f}" if capacity.latency_ms >= 100 else f"{capacity.latency_ms:.1f}",
        f"{offer.replicas:,}",
        f"{offer.per_hour:,.2f}",
        f"{offer.reserved:,}",
        f"{offer.reserved_per_hour:,.2f}",
        f"{offer.reserved_per_million:,.2f}",
    ]


def _print_simulation(runs: Sequence[Simulated], pattern: str, load: Load) -> None:
    console.echo(f"simulated, {pattern}, requests spread over the replicas by chance:")
    numbers = ["replicas", "in the mean", "used", "busiest minute", "p50 ms", "p95 ms", "p99 ms"]
    rows = [
        [
            name,
            f"{run.replicas:,}",
            f"{run.mean_replicas:,.1f}",
            f"{run.utilization:.0%}",
            f"{run.busiest:.0%}",
            *(f"{value:.1f}" for value in (run.p50, run.p95, run.p99)),
            "yes" if run.of(load.objective) <= load.objective.ms else "no",
        ]
        for name, run in runs
    ]
    console.table(["fleet", *numbers, str(load.objective)], rows, right=numbers)


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
