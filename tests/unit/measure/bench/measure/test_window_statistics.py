"""The arithmetic of ``trb bench``: percentiles, windows, stability, arrivals, the client's verdict."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from bench_values import window

from triton_repo_builder.measure.bench.load.worker import poisson_arrivals
from triton_repo_builder.measure.bench.measure import window_statistics
from triton_repo_builder.measure.bench.measure.bottleneck import ClientLoad, verdict


def test_percentiles_are_exact() -> None:
    found = window_statistics.latency(np.arange(1.0, 102.0))
    assert found is not None
    assert (found.p50, found.p90, found.p95, found.p99, found.max) == (51.0, 91.0, 96.0, 100.0, 101.0)
    assert found.mean == 51.0
    assert found.std == pytest.approx(29.155, abs=1e-3)
    assert window_statistics.latency(np.empty(0)) is None


def test_a_window_takes_what_ended_in_it_and_counts_from_when_it_was_due() -> None:
    due = np.array([0.0, 0.5, 1.1, 1.2, 1.9])
    ended = np.array([0.9, 1.0, 1.2, 1.6, 2.0])
    kinds = np.array([0, 0, 0, 2, 0])
    found = window_statistics.window(due, ended, kinds, 1.0, 2.0)
    assert (found.answered, found.failed, found.arrived, found.throughput) == (2, 1, 3, 2.0)
    assert found.latency is not None
    assert found.latency.max == pytest.approx(500.0), (
        "from when it was due, though that was before the window"
    )


@pytest.mark.parametrize(
    ("counts", "p50s", "expected"),
    [
        ((100, 100), (5, 5), False),
        ((100, 105, 95), (5, 5, 5), True),
        ((100, 130, 100), (5, 5, 5), False),
        ((100, 100, 100), (5, 5, 8), False),
        ((10, 100, 100, 100), (50, 5, 5, 5), True),
        ((0, 0, 0), (None, None, None), False),
    ],
)
def test_three_windows_that_agree_are_stable(
    counts: tuple[int, ...], p50s: tuple[float | None, ...], expected: bool
) -> None:
    windows = [window(count, p50) for count, p50 in zip(counts, p50s, strict=True)]
    assert window_statistics.stable(windows, "closed") is expected


def test_one_window_has_no_spread() -> None:
    assert window_statistics.spread([window(100)], "closed") == {"throughput": None, "p95": None}
    assert window_statistics.spread([window(100), window(110)], "closed")["throughput"] == pytest.approx(
        5 / 105
    )


def test_chance_arrivals_do_not_make_an_open_loop_unstable() -> None:
    windows = [window(60, arrived=60), window(100, arrived=100), window(80, arrived=81)]
    assert window_statistics.stable(windows, "open")
    assert not window_statistics.stable(windows, "closed")
    falling_behind = [window(50, arrived=100), window(50, arrived=50), window(50, arrived=200)]
    assert not window_statistics.stable(falling_behind, "open")


def test_three_windows_without_an_answer_are_silent() -> None:
    assert window_statistics.silent([window(0, None)] * 3)
    assert not window_statistics.silent([window(0, None)] * 2)
    assert not window_statistics.silent([window(0, None), window(0, None), window(1)])


def test_arrivals_are_poisson() -> None:
    times = np.array(list(islice(poisson_arrivals(200.0, seed=7), 20_000)))
    gaps = np.diff(times)
    assert (gaps > 0).all()
    assert gaps.mean() == pytest.approx(1 / 200, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03), "exponential: deviation equals the mean"
    assert list(islice(poisson_arrivals(5.0, seed=1), 5)) == list(islice(poisson_arrivals(5.0, seed=1), 5))
    assert list(islice(poisson_arrivals(5.0, seed=1), 5)) != list(islice(poisson_arrivals(5.0, seed=2), 5))


IDLE = ClientLoad(
    busiest_core=0.2,
    cores=0.3,
    machine_busy=0.5,
    machine_cores=2,
    lag_ms=0.4,
    p50_ms=10.0,
    same_machine=True,
    processes=2,
)


def test_the_client_is_named_where_it_may_be_the_limit() -> None:
    assert verdict(IDLE, 0.7) == ""
    assert "used 85% of a core" in verdict(replace(IDLE, busiest_core=0.85), 0.7)
    crowded = replace(IDLE, busiest_core=0.6, cores=1.2, machine_busy=0.99)
    assert "60% of this machine, which was 99% busy" in verdict(crowded, 0.7)
    assert verdict(replace(crowded, same_machine=False), 0.7) == ""
    assert "waited 6.0 ms" in verdict(replace(IDLE, lag_ms=6.0), 0.7)
    assert verdict(replace(IDLE, lag_ms=6.0, p50_ms=100.0), 0.7) == ""
    assert verdict(replace(IDLE, lag_ms=None, p50_ms=None, machine_busy=None), 0.7) == ""
