"""A day of a fleet: against the simulator event by event, and bookkeeping of replicas."""

from __future__ import annotations

import numpy as np
import pytest

from triton_repo_builder.measure.capacity import arrivals, day, simulate, steady
from triton_repo_builder.measure.capacity.autoscaler import Autoscaler, Rule, Target
from triton_repo_builder.measure.capacity.service import Service, Stage
from triton_repo_builder.measure.capacity.steady import Steady

SERVICE = Service(
    stages=(
        Stage(model="t", instances=1, max_batch=8, delay_ms=0, threads=1, batch_ms={1: 1.0, 8: 2.0}),
        Stage(model="m", instances=1, max_batch=4, delay_ms=0, threads=1, batch_ms={1: 40.0, 4: 40.0}),
    ),
    overhead_ms=1.0,
    cores=0,
    spread=((0.0, 0.9), (0.5, 1.0), (1.0, 1.1)),
)
LIMIT = SERVICE.per_second
"""100 requests a second."""


@pytest.fixture(scope="module")
def table() -> Steady:
    return steady.measure(SERVICE, 1)


def fleet(table: Steady, objective_ms: float = 200, start: int = 60) -> day.Fleet:
    return day.Fleet(steady=table, objective_ms=objective_ms, start=start)


def ones(ticks: int) -> arrivals.Floats:
    return np.ones(ticks)


def test_the_table_holds_what_the_simulator_says(table: Steady) -> None:
    due = arrivals.arrivals(np.full(300, 0.8 * LIMIT), 9)
    run = simulate.trace(SERVICE, due, 9)
    assert table.late(0.8, 100) == pytest.approx((run.latency > 100).mean(), abs=0.03)
    waiting = (run.started - run.queued)[1]
    assert table.queued_ms(0.8)[1] == pytest.approx(waiting.mean(), rel=0.15)
    sampled = table.sample(0.8, 4000, np.random.default_rng(1))[:, 1].mean()
    # Little's law.
    assert sampled == pytest.approx(0.8 * LIMIT * waiting.mean() / 1000, rel=0.15)


def test_busy_cores_are_the_work_over_time(table: Steady) -> None:
    # At a low load each request is computed alone: 1 + 40 + 1 ms.
    assert table.cores(0.02) == pytest.approx(0.02 * LIMIT * 0.042, rel=0.2)


@pytest.mark.parametrize("highest", [0.8, 1.3])
def test_a_minute_of_more_load_is_late_as_the_simulator_says(table: Steady, highest: float) -> None:
    """Two minutes at half the limit, one at more, three at half of it."""
    shares = np.repeat([0.5, highest, 0.5], [24, 12, 36])
    outcome = day.run(fleet(table), shares * LIMIT, 1, ones(72), 1)
    due = arrivals.arrivals(np.repeat(shares * LIMIT, day.TICK), 4)
    late = float((simulate.run(SERVICE, due, 4) > 200).mean())
    assert outcome.late == pytest.approx(late, abs=0.03)
    assert (late > 0.2) == (highest > 1)


def test_requests_that_cost_more_load_a_replica_more(table: Steady) -> None:
    load = np.full(24, 0.8 * LIMIT)
    cheap = day.run(fleet(table), load, 1, ones(24), 1)
    dear = day.run(fleet(table), load, 1, 1.4 * ones(24), 1)
    assert cheap.late < 0.01 < 0.3 < dear.late


def follows(value: float) -> Autoscaler:
    """An autoscaler that always wants this many replicas."""
    target = Target(total=lambda _: value, value=1.0)
    return Autoscaler(rule=Rule(name="r", targets=(target,), window=15), least=1, most=50)


def test_a_new_replica_is_ready_after_its_start_and_paid_from_the_decision(table: Steady) -> None:
    outcome = day.run(fleet(table, start=60), np.full(48, 0.1), follows(3), ones(48), 1)
    counts = outcome.counts.tolist()
    # The first scrape is at 0 s, so the first decision is at 15 s, and two are ready at 75 s.
    assert counts == [1] * 15 + [3] * 33
    assert outcome.replica_hours * 3600 == pytest.approx(15 * 1 + 225 * 3)
    assert outcome.changes == 1 and outcome.most == 3


def test_fewer_replicas_go_at_once(table: Steady) -> None:
    wishes = [5.0, 5.0, *[2.0] * 9]
    target = Target(total=lambda _: wishes.pop(0), value=1.0)
    scaler = Autoscaler(rule=Rule(name="r", targets=(target,), window=15), least=1, most=50)
    outcome = day.run(fleet(table, start=5), np.full(36, 1.0), scaler, ones(36), 1)
    assert outcome.counts.tolist() == [1] * 4 + [5] * 5 + [2] * 27
    assert not wishes


def test_a_day_is_the_same_for_a_seed_and_has_its_mean() -> None:
    one, again, other = day.load(100, 1), day.load(100, 1), day.load(100, 2)
    assert (one == again).all() and (one != other).any()
    assert len(one) == 86_400 // day.TICK
    assert 0.6 < one.mean() / 100 < 0.8 and one.max() < 250 and one.min() > 10
