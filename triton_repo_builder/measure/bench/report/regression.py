"""The verdict of ``--max-regression``: levels that are slower than those they are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import counted, some
from triton_repo_builder.measure.bench.report.comparison import title
from triton_repo_builder.measure.bench.report.report import BenchReport, Ratio, Slower, Verdict


def judge(report: BenchReport, most: float) -> BenchReport:
    """The report with its verdict: each level may be worse than the other one by the share ``most``."""
    pairs = list(_pairs(report))
    slower = tuple(each for ratio, against in pairs for each in _slower(ratio, against, most))
    named = {_name(ratio.variant, ratio.level) for ratio, _ in pairs}
    # A gate that leaves levels out must not look like one that has passed them.
    without = [_name(level.variant, title(level)) for level in report.levels] if report.baseline else []
    unknown = [_name(ratio.variant, ratio.level) for ratio, against in pairs if _unknown(ratio)]
    not_compared = tuple(dict.fromkeys([*(name for name in without if name not in named), *unknown]))
    if not pairs and not not_compared:
        not_compared = tuple(_name(level.variant, title(level)) for level in report.levels)
    passed = not slower and not not_compared
    verdict = Verdict(max_regression=most, passed=passed, slower=slower, not_compared=not_compared)
    return replace(report, verdict=verdict)


def lines(verdict: Verdict) -> list[str]:
    """One line for each quantity that is worse than its limit, and one for levels without a verdict."""
    texts = [
        f"{_name(each.variant, each.level)}: {each.quantity} is {each.ratio:.3f} x, "
        f"{'below' if each.ratio < each.limit else 'above'} the limit of {each.limit:.3f} x, "
        f"against {each.against}"
        for each in verdict.slower
    ]
    if verdict.not_compared:
        texts.append(f"not compared: {some(verdict.not_compared)}")
    return texts


def error(verdict: Verdict) -> TrbError | None:
    """The failure that a verdict is; None if it passed."""
    if verdict.passed:
        return None
    details = "".join(f"\n  {line}" for line in lines(verdict))
    if not verdict.slower:
        count = counted(len(verdict.not_compared), "level")
        return TrbError(
            Code.NOT_COMPARED,
            f"there is no verdict on {count}{details}",
            remedy="measure the same levels as the baseline, or make a new baseline with --output",
        )
    count = counted(len({(each.variant, each.level) for each in verdict.slower}), "level")
    share = f"{100 * verdict.max_regression:.4g} %"
    return TrbError(
        Code.SLOWER,
        f"worse than the reference by more than {share}: {count}{details}",
        remedy="find what changed; if it is meant, make a new baseline with --output",
    )


def _pairs(report: BenchReport) -> Iterator[tuple[Ratio, str]]:
    """Each ratio, and what it compares with."""
    yield from ((ratio, ratio.against) for ratio in report.ratios)
    if report.baseline:
        yield from ((ratio, report.baseline.file) for ratio in report.baseline.ratios)


def _slower(ratio: Ratio, against: str, most: float) -> Iterator[Slower]:
    limits = (("throughput", ratio.throughput, round(1 - most, 9)), ("p99", ratio.p99, round(1 + most, 9)))
    for quantity, value, limit in limits:
        if value is not None and (value < limit if quantity == "throughput" else value > limit):
            yield Slower(
                variant=ratio.variant,
                against=against,
                level=ratio.level,
                quantity=quantity,
                ratio=value,
                limit=limit,
            )


def _unknown(ratio: Ratio) -> bool:
    """Whether a ratio is missing. A level without an answer has no p99, but its throughput of 0 is known."""
    return ratio.throughput is None or (ratio.p99 is None and ratio.throughput > 0)


def _name(variant: str, level: str) -> str:
    return f"{variant} {level}" if variant else level
