"""A metrics page in the Prometheus text format: its samples, their sums, and quantiles of histograms.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*")
"""Name, labels, value; a timestamp is ignored."""
LABEL = re.compile(r'[ \t]*([a-zA-Z_]\w*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
ESCAPED = re.compile(r"\\(.)")


class Sample(NamedTuple):
    """One line of a page: the value of one series."""

    name: str
    labels: Mapping[str, str]
    value: float


def read(text: str) -> list[Sample]:
    """All samples of a page in their order; comments and lines in another format are left out."""
    return list(_samples(text))


def _samples(text: str) -> Iterator[Sample]:
    # Not splitlines(): a label may contain other line ends, such as U+2028.
    for line in text.split("\n"):
        match = LINE.fullmatch(line.strip(" \t\r"))
        if match is None:
            continue
        labels = _labels(match[2] or "")
        try:
            value = float(match[3])
        except ValueError:
            continue
        if labels is not None:
            yield Sample(match[1], labels, value)


def _labels(text: str) -> dict[str, str] | None:
    """Labels between the braces; None if they are damaged."""
    labels, position = {}, 0
    while position < len(text.rstrip(" \t")):
        match = LABEL.match(text, position)
        if match is None:
            return None
        labels[match[1]] = ESCAPED.sub(_unescaped, match[2])
        position = match.end()
    return labels


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1] if match[1] in '\\"' else match[0]


class Page:
    """Samples by their name, for sums over some of the labels."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self._series: dict[str, list[Sample]] = {}
        self._of_model: dict[tuple[str, str], list[Sample]] = {}
        for sample in samples:
            self._series.setdefault(sample.name, []).append(sample)
            if model := sample.labels.get("model"):
                self._of_model.setdefault((sample.name, model), []).append(sample)

    def __contains__(self, name: str) -> bool:
        """Whether the page has a series of this name."""
        return name in self._series

    def select(self, name: str, **labels: str) -> list[Sample]:
        """The series of this name that have all these labels."""
        pairs, model = labels.items(), labels.get("model")
        listed = self._of_model.get((name, model), ()) if model else self._series.get(name, ())
        return [sample for sample in listed if pairs <= sample.labels.items()]

    def total(self, name: str, **labels: str) -> float | None:
        """Sum of these series; None without any."""
        values = [sample.value for sample in self.select(name, **labels) if math.isfinite(sample.value)]
        return sum(values) if values else None

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Sum of these series for each value of a label."""
        sums: dict[str, float] = {}
        for sample in self.select(name, **labels):
            if label in sample.labels and math.isfinite(sample.value):
                key = sample.labels[label]
                sums[key] = sums.get(key, 0.0) + sample.value
        return sums


def growth(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Growth of counters by key; a counter that fell began anew at 0, as for PromQL's ``increase``."""
    old = {key: before.get(key, 0.0) for key in after}
    return {key: value - old[key] if value >= old[key] else value for key, value in after.items()}


def quantile(share: float, buckets: Mapping[str, float]) -> float | None:
    """A quantile by linear interpolation in cumulative buckets (upper bound to count).

    As PromQL's ``histogram_quantile``: the highest finite bound if the quantile is above it. None without
    observations.
    """
    steps = sorted((_bound(bound), count) for bound, count in buckets.items())
    if len(steps) < 2 or not math.isinf(steps[-1][0]) or not steps[-1][1]:
        return None
    rank = share * steps[-1][1]
    place = next(place for place, (_, count) in enumerate(steps) if count >= rank)
    if place == len(steps) - 1:
        return steps[-2][0]
    return _interpolated(rank, steps, place)


def _interpolated(rank: float, steps: Sequence[tuple[float, float]], place: int) -> float:
    bound, count = steps[place]
    start, below = steps[place - 1] if place else (min(bound, 0.0), 0.0)
    return start + (bound - start) * (rank - below) / (count - below) if count > below else bound


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
