"""The simulator against queues that theory solves, and against batches counted by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from triton_repo_builder.measure.capacity import arrivals, predict, simulate
from triton_repo_builder.measure.capacity.service import Service, Stage
from triton_repo_builder.measure.objective import Objective

SAME = ((0.0, 1.0), (1.0, 1.0))
LONG = np.linspace(0, 0.9999, 2000)
EXPONENTIAL = tuple(zip(LONG.tolist(), (-np.log(1 - LONG)).tolist(), strict=True))


def service(*stages: Stage, cores: int = 0, spread: tuple[tuple[float, float], ...] = SAME) -> Service:
    return Service(stages=stages, overhead_ms=0, cores=cores, spread=spread)


def stage(batch: int = 1, instances: int = 1, delay: float = 0, **times: float) -> Stage:
    measured = {int(name[1:]): value for name, value in times.items()} or {1: 10.0}
    return Stage(
        model="m", instances=instances, max_batch=batch, delay_ms=delay, threads=1, batch_ms=measured
    )


def poisson(rate: float, seconds: int = 600) -> arrivals.Floats:
    return arrivals.arrivals(np.full(seconds, rate), 1)


@pytest.mark.parametrize("used", [0.3, 0.5, 0.8])
def test_one_server_with_constant_service_waits_as_pollaczek_khinchine_say(used: float) -> None:
    mean = simulate.run(service(stage()), poisson(100 * used), 1).mean()
    assert mean == pytest.approx(10 * (1 + used / (2 * (1 - used))), rel=0.05)


def test_one_server_with_exponential_service() -> None:
    latencies = simulate.run(service(stage(), spread=EXPONENTIAL), poisson(50, 1500), 1)
    assert latencies.mean() == pytest.approx(20, rel=0.05)
    assert np.percentile(latencies, 99) == pytest.approx(20 * math.log(100), rel=0.1)


def test_two_servers_with_exponential_service_wait_as_erlang_says() -> None:
    latencies = simulate.run(service(stage(instances=2), spread=EXPONENTIAL), poisson(150, 700), 1)
    # M/M/2 at 75 %: mean = service / (1 - 0.75²)
    assert latencies.mean() == pytest.approx(10 / (1 - 0.75**2), rel=0.07)


def test_executions_that_share_a_core_slow_each_other_down() -> None:
    latencies = simulate.run(service(stage(instances=1000), cores=1), poisson(50), 1)
    assert latencies.mean() == pytest.approx(20, rel=0.05)


def test_executions_that_share_memory_slow_each_other_down() -> None:
    lone = replace(service(stage(instances=2), cores=2), contention=1.5)
    apart = np.arange(100) * 0.1
    assert simulate.run(lone, apart, 1).mean() == pytest.approx(10)
    both = np.repeat(apart, 2)
    assert simulate.run(lone, both, 1).mean() == pytest.approx(15)
    assert lone.per_second == pytest.approx(200 / 1.5)
    assert Service.of_json(lone.to_json()) == lone


def test_answers_of_a_batch_leave_the_next_one_its_share_of_the_cores() -> None:
    made = replace(service(stage(batch=10, c1=10.0, c10=10.0), cores=2), overhead_ms=10)
    # Ten at once: the first takes the model, nine are a batch, an eleventh comes while they are answered.
    latencies = simulate.run(made, np.array([0.0] * 10 + [0.021]), 1)
    # One answer after another on the core that the model leaves; the eleventh is computed beside them.
    assert latencies[1:10] == pytest.approx([20 + 10 * number for number in range(1, 10)])
    assert latencies[10] == pytest.approx(20 + 9 * 10 + 10 - 21)
    # On a single core the model and one answer have a half each while it computes, from 30 to 50 ms.
    alone = simulate.run(replace(made, cores=1), np.array([0.0] * 10 + [0.041]), 1)
    assert alone[10] == pytest.approx(alone[9] + 10 - 41)


def test_two_servers_are_two_queues() -> None:
    one = simulate.run(service(stage()), poisson(50), 1).mean()
    due = poisson(100)
    servers = np.random.default_rng(1).integers(0, 2, len(due))
    two = simulate.run(service(stage()), due, 1, servers).mean()
    assert two == pytest.approx(one, rel=0.05)


def test_what_waits_while_an_instance_is_busy_is_one_batch() -> None:
    due = np.array([0.0, 0.001, 0.002, 0.003])
    latencies = simulate.run(service(stage(batch=2, _1=10, _2=12)), due, 1)
    # The first alone until 10 ms; then the second and third until 22 ms; the last until 32 ms.
    assert latencies.tolist() == pytest.approx([10, 21, 20, 29])


def test_a_batch_waits_for_others_no_longer_than_its_delay() -> None:
    due = np.array([0.0, 0.002, 0.1])
    latencies = simulate.run(service(stage(batch=4, delay=5, _1=10, _4=10)), due, 1)
    assert latencies.tolist() == pytest.approx([15, 13, 15])


def test_a_full_batch_does_not_wait() -> None:
    latencies = simulate.run(service(stage(batch=2, delay=50, _1=10, _2=10)), np.array([0.0, 0.001]), 1)
    assert latencies.tolist() == pytest.approx([11, 10])


def test_stages_follow_each_other() -> None:
    latencies = simulate.run(service(stage(_1=3), stage(_1=4)), np.array([0.0, 1.0]), 1)
    assert latencies.tolist() == pytest.approx([7, 7])


def test_times_between_measured_sizes() -> None:
    measured = stage(batch=16, _1=5, _4=8, _8=20)
    assert [measured.time(rows) for rows in (1, 2, 4, 6, 8, 16)] == [5, 6, 8, 14, 20, 44]


def test_the_capacity_is_that_of_the_slowest_part() -> None:
    assert service(stage(batch=2, _1=10, _2=10), stage(instances=4)).per_second == 200
    assert service(stage(instances=4), cores=2).per_second == 200


@pytest.mark.parametrize("pattern", arrivals.PATTERNS)
def test_rates_of_each_pattern(pattern: str) -> None:
    load = arrivals.rates(pattern, 100, 20_000, 1)
    if pattern == "daily":
        assert (load.max(), load.min()) == (pytest.approx(100), pytest.approx(30))
    else:
        assert load.mean() == pytest.approx(100, rel=0.1)
    assert (load.max() > load.mean() * 2) == (pattern == "bursty")


def test_an_autoscaler_is_late_when_the_load_rises_and_not_when_it_falls() -> None:
    load = np.concatenate([np.full(100, 60.0), np.full(200, 600.0), np.full(100, 60.0)])
    running = arrivals.replicas(load, 100, arrivals.Autoscaling(delay=60))
    assert running[99] == 2
    assert running[100 + 59] == 2
    assert running[100 + 60 + arrivals.MEASURED] == 10
    assert running[299] == 10
    assert running[300 + arrivals.MEASURED] == 2


def test_a_million_requests_a_second_cost_no_more_than_a_thousand() -> None:
    scenario = predict.Scenario(pattern="poisson", rps=1_000_000)
    many = predict.predict(service(stage()), scenario, 20_000)
    few = predict.predict(service(stage()), predict.Scenario(pattern="poisson", rps=1000), 20)
    assert many.requests == pytest.approx(few.requests, rel=0.1)
    assert many.p99 == pytest.approx(few.p99, rel=0.1)


@pytest.mark.slow
def test_the_fewest_replicas_meet_the_objective_and_one_percent_fewer_do_not() -> None:
    scenario = predict.Scenario(pattern="poisson", rps=1000)
    objective = Objective(percentile="p99", ms=50)
    best = predict.fewest(service(stage()), scenario, objective)
    assert best.p99 <= 50
    assert predict.predict(service(stage()), scenario, best.replicas - 1).p99 > 50


def test_a_service_survives_json() -> None:
    whole = service(stage(batch=8, delay=1, _1=2, _8=9), cores=2, spread=((0, 0.5), (1, 2)))
    assert Service.of_json(whole.to_json()) == whole
