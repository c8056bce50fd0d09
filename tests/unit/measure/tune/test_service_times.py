"""What the simulations of ``trb plan`` are told of a server that has been measured."""

from itertools import pairwise

import pytest

from triton_repo_builder.measure.bench.report.report import Latency
from triton_repo_builder.measure.tune import service_times


def test_the_spread_is_of_the_time_in_the_models() -> None:
    latency = Latency(mean=10, std=6, p50=8, p90=14, p95=20, p99=34, max=40)
    found = service_times.spread(latency, 2.0)
    assert [share for share, _ in found] == [0.0, 0.5, 0.9, 0.95, 0.99, 1.0]
    factors = [factor for _, factor in found]
    # 8 - 2 ms and 34 - 2 ms: the 99th percentile is 5.3 times the median, not 4.25.
    assert factors[4] / factors[1] == pytest.approx(32 / 6)
    mean = sum((right[0] - left[0]) * (left[1] + right[1]) / 2 for left, right in pairwise(found))
    assert mean == pytest.approx(1)


def test_no_request_computes_less_than_nothing() -> None:
    latency = Latency(mean=10, std=6, p50=8, p90=14, p95=20, p99=34, max=40)
    assert all(factor > 0 for _, factor in service_times.spread(latency, 9.0))
