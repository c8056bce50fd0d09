"""When a level meets a latency objective."""

import pytest
from bench_values import latency, level, window

from triton_repo_builder.measure.bench.judge import missed
from triton_repo_builder.measure.objective import Objective

SLO = Objective(percentile="p99", ms=20)


def test_fast_enough() -> None:
    assert missed(level(latency=latency(5)), SLO) == ""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"latency": latency(5.1)}, "p99 is 20.4 ms"),
        ({"latency": None}, "nothing"),
        ({"failures": {"overrun": 3}}, "3 overrun"),
        ({"ended": "the server stopped answering"}, "stopped"),
        ({"windows": (window(answered=500, arrived=1000),)}, "500 of 1000"),
    ],
)
def test_why_not(changes: dict[str, object], reason: str) -> None:
    assert reason in missed(level(**changes), SLO)


def test_chance_arrivals_at_the_end_do_not_count_as_a_queue() -> None:
    assert missed(level(windows=(window(answered=93, arrived=100),)), SLO) == ""
