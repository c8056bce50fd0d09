"""Rules for an autoscaler over a day's load, simulated: late requests and replica hours.

    .venv/bin/python benchmarks/autoscaling.py [--days 3 --start 120]

Nothing is served: the service times were measured before, by ``trb tune`` (``examples/tuned_sleeper``) and
by ``benchmarks/plan_simulator.py`` (a transformer). Prometheus scrapes every 15 s, recording rules and the
HorizontalPodAutoscaler of Kubernetes follow 15 s later, and a new replica is ready ``--start`` seconds after
the decision. Takes about two minutes of CPU.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import common
import numpy as np
from common import Result, number, say

from triton_repo_builder.measure.capacity import day, limit, scaling_rules, steady
from triton_repo_builder.measure.capacity.arrivals import DAY, Floats, rates
from triton_repo_builder.measure.capacity.autoscaler import Autoscaler, Rule
from triton_repo_builder.measure.capacity.service import Service
from triton_repo_builder.measure.capacity.steady import Steady
from triton_repo_builder.measure.objective import Objective

OBJECTIVE = Objective(percentile="p99", ms=200.0)
PEAK = 8
"""Replicas at their limit that the highest point of the day's curve keeps busy, without noise and bursts."""
LEAST, MOST = 2, 24
LONGER, FROM, TO = 1.4, 12, 15
"""Times that a request takes as long, between two hours of the second day."""
STARTS = (30, 120, 300)
CPUS = 2.0
"""Cores that a replica requests."""


@dataclass(frozen=True)
class Subject:
    """A service with measured times."""

    title: str
    about: str
    service: Service
    capacity: float
    """Requests per second that were measured within the objective; infinite if that was not measured."""


def subjects() -> Iterator[Subject]:
    tuned = json.loads((common.ROOT / "examples" / "tuned_sleeper" / "report.json").read_text())
    yield Subject(
        "A model that batches for free",
        "`sleeper` of `examples/tuned_sleeper/report.json`: two instances, batches up to 8, about 32 ms "
        "each, as on a GPU.",
        Service.of_json(tuned["service"]),
        max(entry["capacity"] for entry in tuned["compared"]),
    )
    measured = json.loads((common.RESULTS / "plan_simulator.json").read_text())["runs"][1]
    yield Subject(
        "A transformer on CPU",
        "all-MiniLM-L6-v2 of [plan_simulator.md](plan_simulator.md): a tokenizer, and one instance with one "
        "thread whose time grows with the batch.",
        Service.of_json(measured["service"]),
        float("inf"),
    )


def rules(service: Service, found: limit.Limit) -> Iterator[Rule]:
    ensemble = len(service.stages) > 1
    yield scaling_rules.ours(service, found)
    yield scaling_rules.pending_alone(service, found, 300)
    yield Rule(
        name="pending batches alone, usual pace",
        targets=(scaling_rules.pending(service, scaling_rules.waiting_batches(found)),),
    )
    yield Rule(name="NVIDIA's chart: queue time, 50 us", targets=(scaling_rules.queue_time(50, ensemble),))
    yield Rule(name="the same at 50 ms", targets=(scaling_rules.queue_time(50_000, ensemble),))
    if service.cores:
        yield Rule(name="CPU, 50 %", targets=(scaling_rules.cpu(0.5),))


def scenarios() -> Iterator[tuple[str, Floats]]:
    hours = np.arange(0, DAY, day.TICK) / 3600
    yield "a day", np.ones(len(hours))
    yield (
        f"the same day; from {FROM} to {TO} h each request takes {LONGER:g} times as long",
        np.where((hours >= FROM) & (hours < TO), LONGER, 1.0),
    )


HEAD = ("rule", "late", "late hours", "replica hours", "most replicas", "changes")
FIXED = (10, 12, 14)
"""Fleets without an autoscaler, beside the rules."""
DRAWN = ("NVIDIA's chart: queue time, 50 us", "CPU, 50 %", "trb export")
"""Rules in the plot; those that swing between the fewest and the most replicas would cover it."""
NOTES = """How it is computed: each replica is in the steady state of its load, of which the simulator of
`trb plan` made a table; beyond its limit a backlog grows. Requests spread evenly over the replicas that are
ready. A queue that chance builds up near the limit is in the table, not in the course of the day. Removed
replicas answer what they have. The rules' PromQL is computed from simulated scrapes; no Prometheus and no
Kubernetes took part.

NVIDIA's rule is the one of `deploy/k8s-onprem/values.yaml` in triton-inference-server/server:
`avg(delta(nv_inference_queue_duration_us[30s]) / (1 + delta(nv_inference_request_success[30s])))` by pod,
target 50 (microseconds), at Kubernetes' default pace. 50 ms is what others set instead. An ensemble's own
series, whose queue is empty, counts as one of the pod's models. A rule whose replica hours are the most
replicas times 24 does not scale at all: its metric is above the target even with short queues.

A queue says when to add replicas and not how many may go: it is as good as empty at half the load. So
`pending batches alone` removes replicas until the rest is overloaded, and the queue time of 50 ms does the
same. `trb export` reads the load of a replica besides, against the limit that `trb tune` measured; without a
report it removes one replica after the other. CPU utilization needs no measurement and is as good where the
model runs on the CPU; it says nothing where a GPU computes."""


def scaled(rule: Rule) -> Autoscaler:
    return Autoscaler(rule=rule, least=LEAST, most=MOST)


def row(name: str, days: list[day.Outcome]) -> list[str]:
    return [
        name,
        f"{mean(one.late for one in days):.2%}",
        number(mean(one.late_hours for one in days), 2),
        number(mean(one.replica_hours for one in days), 0),
        str(max(one.most for one in days)),
        number(mean(one.changes for one in days), 0),
    ]


def draw(curves: dict[str, dict[str, Floats]], loads: dict[str, Floats], file: Path) -> None:
    """Replicas over the first day, one panel a service."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.5), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (title, rules_) in zip(figure.subplots(2, 1, sharex=True), curves.items(), strict=True):
        hours = np.arange(len(loads[title])) * day.TICK / 3600
        axes.fill_between(hours, loads[title], color="0.85", label="load, in replicas at their limit")
        for name in DRAWN:
            if name in rules_:
                axes.step(hours[::12], rules_[name][::12], where="post", label=name)
        axes.set_title(title)
        axes.set_ylabel("replicas that are ready")
        axes.legend(fontsize="small", loc="upper left")
    axes.set_xlabel("hour")
    common.save(figure, file)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--days", type=int, default=3, help="different days (default %(default)s)")
    parser.add_argument(
        "--start", type=int, default=120, help="seconds of a replica's start (default %(default)s)"
    )
    parser.add_argument("--output", type=Path, default=common.RESULTS, help="folder of the results")
    arguments = parser.parse_args()
    seeds = range(1, arguments.days + 1)
    result = Result("autoscaling", "Autoscaling rules over a day's load, simulated", arguments.output)
    result.beside = " Nothing is measured: a seed gives the same numbers on any machine."
    night = rates("daily", 1, DAY, 1).min()
    result.add(
        f"Late: requests beyond the limit of the objective, {OBJECTIVE}, which allows 1 %. Late hours: "
        f"minutes with more than 1 % late. Means of {arguments.days} days; a replica is ready "
        f"{arguments.start} s after the decision. The load follows the curve of `trb plan --simulate daily` "
        f"({night:.0%} of the peak at night), with noise of {day.NOISE:.0%}, and {day.BURSTS} bursts a day "
        f"that add {day.BURST_SHARE[0]:.0%} to {day.BURST_SHARE[1]:.0%} within a minute. From {LEAST} to "
        f"{MOST} replicas.",
    )
    plot = result.image()
    outcomes: dict[str, list[dict[str, float]]] = {}
    curves: dict[str, dict[str, Floats]] = {}
    filled: dict[str, Floats] = {}
    for subject in subjects():
        service = subject.service
        found = limit.limit(service, OBJECTIVE, subject.capacity)
        assert found is not None
        known = steady.measure(service, 1)
        loads = {seed: day.load(PEAK * found.per_second, seed) for seed in seeds}
        filled[subject.title] = loads[1] / found.per_second
        result.add(
            f"## {subject.title}",
            f"{subject.about} A replica keeps the objective up to {number(found.per_second, 0)} requests/s, "
            f"with {number(found.pending, 2)} full batches waiting. So the targets of `trb export` are "
            f"{number(scaling_rules.waiting_batches(found), 2)} batches and "
            f"{number(scaling_rules.SHARE * found.per_second, 0)} requests/s. The curve's peak: "
            f"{number(PEAK * found.per_second, 0)} requests/s.",
        )

        def days(
            rule: Rule | int,
            costs: Floats,
            start: int,
            known: Steady = known,
            loads: dict[int, Floats] = loads,
        ) -> list[day.Outcome]:
            fleet = day.Fleet(steady=known, objective_ms=OBJECTIVE.ms, start=start, cpus=CPUS)
            return [
                day.run(fleet, loads[seed], scaled(rule) if isinstance(rule, Rule) else rule, costs, seed)
                for seed in seeds
            ]

        for title, costs in scenarios():
            rows = []
            fixed: list[tuple[str, Rule | int]] = [(f"{count} replicas all day", count) for count in FIXED]
            for name, rule in [*fixed, *((rule.name, rule) for rule in rules(service, found))]:
                taken = days(rule, costs, arguments.start)
                rows.append(row(name, taken))
                say(f"{title}, {rows[-1]}")
                kept = [{key: value for key, value in vars(one).items() if key != "counts"} for one in taken]
                outcomes[f"{subject.title} / {title} / {name}"] = kept
                if costs.max() == 1 and isinstance(rule, Rule):
                    curves.setdefault(subject.title, {})[name] = taken[0].counts
            result.add(f"### {title[0].upper()}{title[1:]}", common.table(HEAD, rows))
        starts = [
            row(
                f"trb export, ready after {seconds} s",
                days(next(rules(service, found)), np.ones(DAY // day.TICK), seconds),
            )
            for seconds in STARTS
        ]
        result.add("### The time until a replica is ready", common.table(HEAD, starts))
    draw(curves, filled, plot)
    result.add("## Background", NOTES)
    result.data |= {"days": arguments.days, "start": arguments.start, "outcomes": outcomes}
    result.write()


if __name__ == "__main__":
    main()
