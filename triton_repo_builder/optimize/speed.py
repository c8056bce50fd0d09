"""How much faster a candidate is: both files in turns on one thread, so that the machine's moods hit both."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from triton_repo_builder.golden import original
from triton_repo_builder.golden.original import OriginalModel
from triton_repo_builder.optimize.samples import Feeds, Samples
from triton_repo_builder.read.source import Source

BATCHES = (1, 16)
SECONDS = 2.0
"""Of a batch size, for both files together, after the least number of rounds."""
ROUNDS, MOST_ROUNDS = 3, 50
LEAN = 1 << 30
"""Bytes of a model that is not prepared as a server would: that costs the memory of its weights again."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Of one file: milliseconds of a run by batch size, and those of the original beside it."""

    latency: dict[int, float]
    original: dict[int, float]
    apart: bool = False
    """Whether it is served row by row, since rows of a batch change each other's answers."""

    @property
    def throughput(self) -> float:
        """Rows a second of the largest batch that it is served in."""
        size = 1 if self.apart else max(self.latency)
        return 1000 * size / self.latency[size]

    @property
    def ratio(self) -> float:
        """How many times as many rows a second as the original in its largest batch."""
        size = max(self.original)
        return self.throughput * self.original[size] / (1000 * size)


def load(source: Source) -> OriginalModel:
    """A file on one thread."""
    return original.load(source, threads=1, lean=source.signature.bytes > LEAN)


def measure(
    baseline: OriginalModel, candidate: OriginalModel, samples: Samples, *, batch: bool, apart: bool = False
) -> Speed:
    """Medians of runs in turns; without ``batch``, of single rows only."""
    own: dict[int, float] = {}
    other: dict[int, float] = {}
    for size in BATCHES if batch else BATCHES[:1]:
        other[size], own[size] = _both(baseline, candidate, samples.batch(size))
    return Speed(latency=own, original=other, apart=apart)


def _both(baseline: OriginalModel, candidate: OriginalModel, feeds: Feeds) -> tuple[float, float]:
    models = (baseline, candidate)
    for model in models:
        model.seconds(feeds)
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + SECONDS
    while len(times[0]) < ROUNDS or (time.perf_counter() < end and len(times[0]) < MOST_ROUNDS):
        for model, taken in zip(models, times, strict=True):
            taken.append(1000 * model.seconds(feeds))
    return statistics.median(times[0]), statistics.median(times[1])
