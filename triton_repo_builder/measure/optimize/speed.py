"""How much faster a candidate is: both files in turns on one thread, so that the machine's moods hit both."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from triton_repo_builder.endpoint.golden import original
from triton_repo_builder.endpoint.golden.original import OriginalModel
from triton_repo_builder.measure.optimize.samples import Feeds, SampleSet
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.run.serve.processes import cpu

BATCHES = (1, 16)
SECONDS = 2.0
"""Seconds for a batch size, for both files together, after the least number of rounds."""
ROUNDS, MOST_ROUNDS = 3, 200
STEADY = 0.25
"""Seconds that a small model is run at least; in less, the CPU time of others is unknown (1/100 s count)."""
LEAST = 0.03
"""Smallest difference that counts: runs of the same file differ by up to this on a steady machine."""
LEAN = 1 << 30
"""Models of more bytes are loaded without a server's preparation, which would double their memory."""


@dataclass(frozen=True, kw_only=True)
class SpeedGain:
    """How many times as fast one file is as another, from runs in turns."""

    low: float
    middle: float
    """The median of all rounds."""
    high: float
    """``low`` to ``high`` is the 95 % interval of the median."""

    @classmethod
    def of(cls, ratios: Sequence[float]) -> SpeedGain:
        """The gain from the ratios of rounds, by order statistics: with few rounds, the whole range."""
        ordered = sorted(ratios)
        out = max(0, int(len(ordered) / 2 - 0.98 * len(ordered) ** 0.5))
        middle = statistics.median(ordered)
        return cls(low=ordered[out], middle=middle, high=ordered[-1 - out])

    def times(self, factor: float) -> SpeedGain:
        """The gain with every ratio multiplied."""
        return SpeedGain(low=self.low * factor, middle=self.middle * factor, high=self.high * factor)

    @property
    def ratio(self) -> float:
        """The median; 1 if the difference is within noise."""
        within = self.low <= 1 <= self.high or abs(self.middle - 1) < LEAST
        return 1.0 if within else self.middle


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Milliseconds of a run by batch size, and the original's in turns with it."""

    latency: dict[int, float]
    original: dict[int, float]
    gains: dict[int, SpeedGain] = field(default_factory=dict)
    """By batch size; empty for the original."""
    apart: bool = False
    """Whether it is served row by row, since rows of a batch change each other's answers."""
    others: float = 0.0
    """Share of the machine that other programs used meanwhile."""

    @property
    def throughput(self) -> float:
        """Rows a second of the largest batch that it is served in."""
        size = 1 if self.apart else max(self.latency)
        return 1000 * size / self.latency[size]

    @property
    def gain(self) -> SpeedGain:
        """Speed against the original, both as they are served.

        Both run in the same batch if both are batched. A file that is served row by row is compared with the
        original in the original's fastest batch. For a small model that may be a single row, and a comparison
        with a slow batch would claim a gain that nobody sees.
        """
        if not self.gains:
            return SpeedGain(low=1.0, middle=1.0, high=1.0)
        if not self.apart:
            return self.gains[max(self.gains)]
        rows = {size: ms / size for size, ms in self.original.items()}
        return self.gains[1].times(min(rows.values()) / rows[1])

    @property
    def ratio(self) -> float:
        """How many times as fast as the original it is; 1 if the difference is within noise."""
        return self.gain.ratio


def load(source: Source) -> OriginalModel:
    """A file on one thread."""
    return original.load(source, threads=1, lean=source.signature.bytes > LEAN)


def measure(
    baseline: OriginalModel,
    candidate: OriginalModel,
    samples: SampleSet,
    *,
    batch: bool,
    row_by_row: bool = False,
) -> Speed:
    """Medians of runs in turns; without ``batch``, of single rows only."""
    latency: dict[int, float] = {}
    other: dict[int, float] = {}
    gains: dict[int, SpeedGain] = {}
    with _watched() as others:
        for size in BATCHES if batch else BATCHES[:1]:
            before, after = _times(baseline, candidate, samples.batch(size))
            other[size], latency[size] = statistics.median(before), statistics.median(after)
            gains[size] = SpeedGain.of([first / second for first, second in zip(before, after, strict=True)])
    return Speed(latency=latency, original=other, gains=gains, apart=row_by_row, others=max(others))


def _times(
    baseline: OriginalModel, candidate: OriginalModel, feeds: Feeds
) -> tuple[list[float], list[float]]:
    """Milliseconds of both in each round. They take turns in who is first, which finds other caches."""
    models = (baseline, candidate)
    for model in models:
        model.seconds(feeds)
    times: tuple[list[float], list[float]] = ([], [])
    begun = time.perf_counter()
    while len(times[0]) < ROUNDS or time.perf_counter() - begun < (
        SECONDS if len(times[0]) < MOST_ROUNDS else min(SECONDS, STEADY)
    ):
        for place in (0, 1) if len(times[0]) % 2 == 0 else (1, 0):
            times[place].append(1000 * models[place].seconds(feeds))
    return times


@contextmanager
def _watched() -> Iterator[list[float]]:
    """A list that gets the share of the machine that programs other than this one used."""
    shares = [0.0]
    begun, busy, own_seconds = time.perf_counter(), cpu.machine(), cpu.tree_seconds(os.getpid())
    yield shares
    share, used = cpu.share(busy, cpu.machine()), cpu.tree_seconds(os.getpid())
    taken = time.perf_counter() - begun
    if share is not None and own_seconds is not None and used is not None and taken >= STEADY:
        shares.append(share - (used - own_seconds) / taken / cpu.count())
