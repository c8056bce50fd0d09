"""The verdict of ``trb bench --max-regression``, on reports as they are written and read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_values import latency, level, report

from triton_repo_builder.base.errors import Code
from triton_repo_builder.measure.bench.report import comparison, html, png, regression
from triton_repo_builder.measure.bench.report import json as json_report
from triton_repo_builder.measure.bench.report.report import Level, Verdict


def judged(tmp_path: Path, now: Level, before: Level, most: float = 0.2) -> Verdict:
    file = tmp_path / "before.json"
    file.write_text(json_report.text(report(before)))
    compared = comparison.compare(report(now), comparison.load(file), file)
    verdict = regression.judge(compared, most).verdict
    assert verdict is not None
    return verdict


def test_a_level_that_is_slower_than_allowed_is_named(tmp_path: Path) -> None:
    verdict = judged(tmp_path, level(throughput=11.0, latency=latency(40.0)), level())
    assert not verdict.passed
    assert [(each.level, each.quantity, each.ratio, each.limit) for each in verdict.slower] == [
        ("grpc 16 clients", "throughput", 0.11, 0.8),
        ("grpc 16 clients", "p99", 8.0, 1.2),
    ]
    error = regression.error(verdict)
    assert error is not None
    assert (error.code, int(error.code.exit)) == (Code.SLOWER, 1)
    file = tmp_path / "before.json"
    assert error.message.splitlines() == [
        "worse than the reference by more than 20 %: 1 level",
        f"  grpc 16 clients: throughput is 0.110 x, below the limit of 0.800 x, against {file}",
        f"  grpc 16 clients: p99 is 8.000 x, above the limit of 1.200 x, against {file}",
    ]


@pytest.mark.parametrize(
    ("throughput", "p50", "most", "found"),
    [
        (80.0, 6.0, 0.2, []),  # at the limits
        (79.9, 5.0, 0.2, ["throughput"]),
        (100.0, 6.01, 0.2, ["p99"]),
        (300.0, 1.0, 0.0, []),  # better is never worse
        (99.0, 5.05, 0.0, ["throughput", "p99"]),
        (1.0, 10.01, 1.0, ["p99"]),
    ],
)
def test_the_limits_of_a_verdict(
    tmp_path: Path, throughput: float, p50: float, most: float, found: list[str]
) -> None:
    verdict = judged(tmp_path, level(throughput=throughput, latency=latency(p50)), level(), most)
    assert ([each.quantity for each in verdict.slower], verdict.passed) == (found, not found)
    assert (regression.error(verdict) is None) == verdict.passed


def test_what_was_not_compared_does_not_pass(tmp_path: Path) -> None:
    """A level that the baseline lacks, or that had no answer then; one without an answer now is slower."""
    dead = level(throughput=0.0, latency=None)
    for now, before in ((level(concurrency=4), level()), (level(), dead), (dead, dead)):
        verdict = judged(tmp_path, now, before)
        assert (verdict.passed, verdict.slower) == (False, ())
        assert verdict.not_compared == (f"grpc {now.load}",)
        error = regression.error(verdict)
        assert error is not None
        assert error.code is Code.NOT_COMPARED
        assert f"not compared: grpc {now.load}" in error.message
    verdict = judged(tmp_path, dead, level())
    assert ([each.quantity for each in verdict.slower], verdict.not_compared) == (["throughput"], ())
    alone = regression.judge(report(level(variant="a")), 0.2).verdict
    assert alone is not None
    assert alone.not_compared == ("a grpc 16 clients",), "the other variant was not measured"


def test_two_variants_are_judged_and_the_verdict_is_in_every_report() -> None:
    old, new = level(variant="old"), level(variant="new", throughput=50.0)
    made = regression.judge(report(old, new, ratios=(comparison.ratio(new, old),)), 0.2)
    document = json.loads(json_report.text(made))
    assert document["verdict"] == {
        "max_regression": 0.2,
        "passed": False,
        "slower": [
            {
                "variant": "new",
                "against": "old",
                "level": "grpc 16 clients",
                "quantity": "throughput",
                "ratio": 0.5,
                "limit": 0.8,
            }
        ],
        "not_compared": [],
    }
    assert json.loads(json_report.text(report(old)))["verdict"] is None
    page = html.render(made, dict.fromkeys(png.FILES, b""))["report.html"].decode()
    assert "new grpc 16 clients: throughput is 0.500 x, below the limit of 0.800 x, against old" in page
