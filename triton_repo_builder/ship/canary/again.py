"""Times are looked at twice: a version is slower only if later requests show it again.

The tests of ``judge`` take requests as independent. On a busy machine they are not: for a second or two one
of two equal servers may have the worse core, and dozens of golden cases see that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from triton_repo_builder.ship.canary import judge
from triton_repo_builder.ship.canary.judge import CHANCE, Verdict
from triton_repo_builder.ship.canary.sample import Sample, Side
from triton_repo_builder.ship.targets.canary_rules import P99

APART = 3.0
"""Seconds between the first request that was judged slow and the second look."""
MOST = 50
"""Requests of the second look that clear a version, if not as many as the first had are fewer."""
Pair = tuple[Side, Side]
"""Stable, canary."""


class Again:
    """The second look at times, of one step."""

    def __init__(self, quantiles: Sequence[float]) -> None:
        self._quantiles = quantiles
        self._first: dict[str, tuple[float, Sample, Sample]] = {}
        """When a source was first seen to be slower, and what both sides had by then."""
        self.pending: frozenset[str] = frozenset()
        """Sources that need more requests."""

    def confirmed(
        self, verdicts: Sequence[Verdict], sources: dict[str, Pair], now: float
    ) -> tuple[Verdict, ...]:
        """The verdicts; a p99 that is broken for the first time, or not again, is CHANCE."""
        pending: set[str] = set()
        result = tuple(
            self._second(each, sources[each.source], now, pending)
            if each.rule.name == P99 and each.broken
            else each
            for each in verdicts
        )
        self.pending = frozenset(pending)
        return result

    def _second(self, verdict: Verdict, pair: Pair, now: float, pending: set[str]) -> Verdict:
        source = verdict.source
        stable, canary = (side.sample for side in pair)
        if source in self._first:
            began, *before = self._first[source]
            # In the last step the stable side is that of the first, and does not grow.
            fresh = (stable.minus(before[0]) if stable != before[0] else stable, canary.minus(before[1]))
            later = judge.latency(
                verdict.rule, source, *(Side(sample=each) for each in fresh), quantiles=self._quantiles
            )
            if later.broken and now - began >= APART:
                return later
            if later.broken or fresh[1].answered < min(MOST, before[1].answered):
                pending.add(source)
                return replace(verdict, state=CHANCE)
        else:
            pending.add(source)
        self._first[source] = (now, stable, canary)
        return replace(verdict, state=CHANCE)
