"""The autoscaler against the arithmetic of Kubernetes, and its rules on metrics made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from triton_repo_builder.measure.capacity import limit, scaling_rules
from triton_repo_builder.measure.capacity.autoscaler import Autoscaler, Rule, Scrape, Target, increase
from triton_repo_builder.measure.capacity.service import Service, Stage
from triton_repo_builder.measure.objective import Objective

SCRAPE = Scrape(
    numbers=(0,),
    pending=np.zeros((1, 1)),
    answered=np.zeros((1, 1)),
    queue_us=np.zeros((1, 1)),
    cpu=np.zeros(1),
)


def stage(model: str = "m", batch: int = 4, instances: int = 2, delay: float = 0, ms: float = 10) -> Stage:
    return Stage(
        model=model, instances=instances, max_batch=batch, delay_ms=delay, threads=1, batch_ms={1: ms}
    )


def service(*stages: Stage, cores: int = 0) -> Service:
    return Service(stages=stages, overhead_ms=0, cores=cores, spread=((0.0, 1.0), (1.0, 1.0)))


def scrape(
    pending: Sequence[Sequence[float]],
    answered: Sequence[Sequence[float]] | None = None,
    queue: Sequence[Sequence[float]] | None = None,
    numbers: Sequence[int] = (),
) -> Scrape:
    shape = np.array(pending, dtype=float)
    return Scrape(
        numbers=tuple(numbers or range(len(pending))),
        pending=shape,
        answered=np.zeros_like(shape) if answered is None else np.array(answered, dtype=float),
        queue_us=np.zeros_like(shape) if queue is None else np.array(queue, dtype=float),
        cpu=np.full(len(pending), 0.5),
    )


def scaler(*totals: float, least: int = 1, most: int = 100, **pace: int) -> tuple[Autoscaler, list[float]]:
    """An autoscaler of a target of 1, and the list of what its metric says next."""
    queue = list(totals)
    target = Target(total=lambda _: queue.pop(0), value=1.0)
    return Autoscaler(rule=Rule(name="r", targets=(target,), **pace), least=least, most=most), queue


@pytest.mark.parametrize(
    ("total", "count", "wished"),
    [(6.0, 3, 6), (3.3, 3, 3), (3.31, 3, 4), (2.7, 3, 3), (6.01, 6, 6), (6.7, 6, 7)],
)
def test_replicas_are_the_total_over_the_target_beyond_a_tolerance(
    total: float, count: int, wished: int
) -> None:
    assert scaler(total)[0].replicas(0, count, [SCRAPE]) == wished


def test_the_highest_of_two_metrics_counts() -> None:
    low, high = (Target(total=lambda _, value=value: value, value=1.0) for value in (1.0, 5.0))
    rule = Rule(name="r", targets=(low, high))
    assert Autoscaler(rule=rule, least=1, most=9).replicas(0, 2, [SCRAPE]) == 5


def test_replicas_stay_within_their_bounds() -> None:
    assert scaler(50.0, most=9, up_pods=100)[0].replicas(0, 2, [SCRAPE]) == 9
    assert scaler(0.0, least=3, window=1)[0].replicas(0, 5, [SCRAPE]) == 3


def test_the_usual_pace_up_is_four_or_double() -> None:
    assert scaler(90.0)[0].replicas(0, 2, [SCRAPE]) == 6
    assert scaler(90.0)[0].replicas(0, 10, [SCRAPE]) == 20


def test_a_period_counts_from_its_beginning() -> None:
    auto, _ = scaler(90.0, 90.0, 90.0, 90.0, 90.0, up_pods=0, up_seconds=60)
    count, counts = 2, []
    for number in range(5):
        count = auto.replicas(15 * number, count, [SCRAPE])
        counts.append(count)
    assert counts == [4, 4, 4, 4, 4]
    assert auto.rule.up_seconds == 60


def test_fewer_only_if_none_of_the_window_needed_more() -> None:
    auto, _ = scaler(8.0, 2.0, 2.0, 2.0, window=30)
    assert auto.replicas(0, 8, [SCRAPE]) == 8
    assert auto.replicas(15, 8, [SCRAPE]) == 8
    assert auto.replicas(30, 8, [SCRAPE]) == 2


def test_the_pace_down() -> None:
    auto, _ = scaler(1.0, 1.0, window=1, down_percent=10, down_seconds=60)
    assert auto.replicas(0, 20, [SCRAPE]) == 18
    assert auto.replicas(15, 18, [SCRAPE]) == 18


def test_a_counter_grows_since_a_replica_is_there() -> None:
    first = scrape([[0], [0]], answered=[[10], [20]])
    second = scrape([[0], [0], [0]], answered=[[15], [30], [1]])
    third = scrape([[0], [0], [0], [0]], answered=[[25], [40], [7], [3]])
    assert increase([first, second, third], "answered", 4).tolist() == [[15], [20], [6]]
    assert increase([first], "answered", 4).tolist() == []
    # A removed replica's place is taken by a new one: nothing of the old one counts.
    replaced = scrape([[0], [0]], answered=[[30], [2]], numbers=(0, 5))
    assert increase([first, replaced], "answered", 4).tolist() == [[20]]


def test_pending_batches_of_the_longest_queue_up_to_twice_the_target() -> None:
    metric = scaling_rules.pending(service(stage("t", batch=1, instances=1), stage()), target=2.0)
    assert metric.total([scrape([[0, 8], [3, 0], [0, 800]])]) == pytest.approx(1 + 3 + 4)
    assert metric.total([scrape([[0, 0]]), scrape([[0, 16]])]) == pytest.approx(1)


def test_waiting_that_the_batcher_intends_does_not_count() -> None:
    metric = scaling_rules.pending(service(stage(delay=100)), target=1.0)
    # 20 a second wait 0.1 s each: two wait on average.
    calm = [scrape([[2]], answered=[[300 * number]]) for number in range(4)]
    assert metric.total(calm) == pytest.approx(0)
    busy = [scrape([[10]], answered=[[300 * number]]) for number in range(4)]
    assert metric.total(busy) == pytest.approx(1)


def test_load_is_a_rate_of_the_last_stage() -> None:
    metric = scaling_rules.load(limit.Limit(per_second=100, pending_batches={"m": 1.0}))
    assert metric.value == pytest.approx(60)
    scrapes = [scrape([[0, 0]], answered=[[999 * number, 300 * number]]) for number in range(5)]
    assert metric.total(scrapes) == pytest.approx(20)


def test_nvidias_rule_is_the_mean_time_in_the_queue_of_the_models() -> None:
    metric = scaling_rules.queue_time(50, ensemble=True)
    assert metric.value == 50
    before, after = scrape([[0, 0]]), scrape([[0, 0]], answered=[[99, 99]], queue=[[100_000, 500_000]])
    assert metric.total([before, after]) == pytest.approx((1000 + 5000 + 0) / 3)


def test_nvidias_rule_reads_far_above_its_target_without_a_backlog() -> None:
    """DEPLOYMENT: half a request a second, each of which waits the 5 ms that its batcher may."""
    metric = scaling_rules.queue_time(50, ensemble=False)
    scrapes = [scrape([[0]], answered=[[7.5 * n]], queue=[[7.5 * n * 5000]]) for n in range(3)]
    assert metric.total(scrapes) > 50 * metric.value


def test_the_limit_keeps_the_objective_and_more_does_not() -> None:
    subject = service(stage(batch=1, instances=1))
    found = limit.limit(subject, Objective(percentile="p90", ms=40.0), 1000)
    assert found is not None
    # M/D/1: at 80 % the mean in the queue is 20 ms, at 50 % it is 5 ms.
    assert 50 < found.per_second < 85
    used = found.per_second / 100
    assert found.pending == pytest.approx(used**2 / (2 * (1 - used)), rel=0.15)


def test_the_measured_capacity_bounds_the_limit() -> None:
    found = limit.limit(service(stage()), Objective(percentile="p99", ms=500.0), 30.0)
    assert found is not None and found.per_second == 30


def test_no_limit_where_an_idle_replica_is_late() -> None:
    assert limit.limit(service(stage(ms=50)), Objective(percentile="p50", ms=40.0), 1000) is None
