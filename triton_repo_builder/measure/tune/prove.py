"""Finalists against the default in alternating windows, and what each factor of the winner brings."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from triton_repo_builder.measure.bench.report.report import Level
from triton_repo_builder.measure.tune import bottleneck, factors
from triton_repo_builder.measure.tune.capacity import Meter, SettingCapacity, confirm, find
from triton_repo_builder.measure.tune.factors import Factor, Setting
from triton_repo_builder.measure.tune.live import Live, TrialFailed
from triton_repo_builder.measure.tune.report import Compared, Gain

ROUNDS = 3
FINALISTS = 2
"""Settings that are measured in every round, beside the default."""
NOISE = 0.02
"""Median gains up to this size count as noise."""


def measurements(candidates: int) -> int:
    """Count of measurements in a proof that begins with so many settings beside the default."""
    return 1 + candidates + (ROUNDS - 1) * (1 + min(candidates, FINALISTS))


def alternate(
    live: Live,
    meter: Meter,
    base: Setting,
    settings: Sequence[tuple[Setting, float]],
    tell: Callable[[str], None],
    cores: int,
    *,
    kept: int = FINALISTS,
    finer: bool = True,
) -> tuple[Compared, ...]:
    """Measure every setting once a round, in alternating order; the first setting is the default.

    ``settings`` come with the capacity from the search, near which the rate is looked for. After the first
    round only the ``kept`` best of the others go on: the highest capacity of a search is often luck.
    """
    rounds: list[dict[int, SettingCapacity]] = []
    order = list(range(len(settings)))
    for number in range(ROUNDS):
        done: dict[int, SettingCapacity] = {}
        for index in order if number % 2 == 0 else order[::-1]:
            setting, guess = settings[index]
            tell(f"round {number + 1}: {factors.describe(setting, base)}")
            live.apply(setting, base)
            variant, clients = live.variant(live.endpoint(setting)), factors.clients(setting)
            capacity = find(meter, variant, guess=guess or None, clients=clients, finer=finer)
            done[index] = capacity if finer or not capacity.rate else confirm(meter, variant, capacity)
            if not live.http.answers_live():
                raise TrialFailed(f"the server ended in {factors.describe(setting, base)}")
        rounds.append(done)
        if number == 0:
            order = [0, *sorted(order[1:], key=lambda index: -done[index].rate)[:kept]]
    first = [done[0] for done in rounds]
    return tuple(
        _compared(settings[index][0], base, [done[index] for done in rounds], first, meter, cores)
        for index in sorted(order)
    )


def _compared(
    setting: Setting,
    base: Setting,
    rounds: Sequence[SettingCapacity],
    first: Sequence[SettingCapacity],
    meter: Meter,
    cores: int,
) -> Compared:
    ratios = [a.rate / b.rate for a, b in zip(rounds, first, strict=True) if b.rate]
    latencies = [capacity.latency(meter.objective) for capacity in rounds if capacity.rate]
    level: Level | None = rounds[-1].level
    return Compared(
        name=factors.describe(setting, base),
        setting=dict(setting),
        capacity=statistics.median(capacity.rate for capacity in rounds),
        capacities=tuple(capacity.rate for capacity in rounds),
        latency_ms=statistics.median(latencies) if latencies else None,
        ratio=statistics.median(ratios) if ratios else None,
        lowest=min(ratios, default=None),
        highest=max(ratios, default=None),
        bottleneck=bottleneck.name(level, cores),
    )


def winner(compared: Sequence[Compared]) -> Compared | None:
    """The best of those that were better in every round, by more than noise; None if the default stays."""
    default, *others = compared
    better = [each for each in others if _better(each, default)]
    return max(better, key=lambda each: each.capacity, default=None)


def _better(each: Compared, default: Compared) -> bool:
    if not any(default.capacities):
        return all(each.capacities)
    pairs = zip(each.capacities, default.capacities, strict=True)
    return each.capacity > (1 + NOISE) * default.capacity and all(rate > other for rate, other in pairs)


def gains(
    chosen: Compared,
    base: Setting,
    space: Sequence[Factor],
    capacities: Mapping[str, tuple[float, bool]],
    measure: Callable[[Setting], float | None],
) -> tuple[Gain, ...]:
    """Gain of each factor that was changed: capacity with it over capacity without it.

    ``capacities``: by the key of a setting, its capacity or an upper bound, and whether it is a bound.
    """
    gained = []
    for factor in space:
        before, after = base[factor.name], chosen.setting[factor.name]
        if factors.canonical(chosen.setting).get(factor.name) in (None, before):
            continue
        without = {**chosen.setting, factor.name: before}
        capacity, bound = capacities.get(factors.key(without)) or (measure(without), False)
        gained.append(
            Gain(
                factor=factor.name,
                before=factors.shown(factor.name, before),
                after=factors.shown(factor.name, after),
                gain=chosen.capacity / capacity if capacity else None,
                at_least=bound,
            )
        )
    return tuple(gained)
