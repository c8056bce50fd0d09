"""Growth of the metrics of one model version between two pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from triton_repo_builder.run.observe.exposition import Page, growth, quantile
from triton_repo_builder.run.observe.snapshot import ModelVersion

LABELS = {
    "trb_answers_total": "label",
    "trb_entities_total": "type",
    "trb_question_answers_total": "outcome",
    "trb_boxes_total": "label",
}
"""Counters of answers, and the label that names the answer."""
REFUSED = ("trb_refused_texts_total", "trb_refused_files_total")
MEANS = ("answer_confidence", "embedding_norm", "transcript_characters")
"""Histograms of answers: ``trb_answer_confidence`` and so on."""
COUNTS = (
    "texts",
    "tokens",
    "unknown_tokens",
    "truncated_texts",
    "token_cache_hits",
    "token_cache_misses",
)
"""Counters of a tokenizer: ``trb_texts_total`` and so on."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Milliseconds. ``mean`` is exact; the percentiles are the server's own or of a histogram, else None."""

    mean: float | None = None
    p50: float | None = None
    p99: float | None = None


class Growth:
    """Growth of the metrics of one model version between two pages."""

    def __init__(self, before: Page, after: Page, key: ModelVersion) -> None:
        self._before, self._after = before, after
        self._labels = {"model": key[0], "version": key[1]}

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Growth of these series by the value of a label."""
        of = {**self._labels, **labels}
        return growth(self._before.by(label, name, **of), self._after.by(label, name, **of))

    def total(self, name: str, **labels: str) -> float | None:
        """Growth of these series together; None if there are none."""
        sums = self.by("model", name, **labels)
        return sum(sums.values()) if sums else None

    def texts(self) -> dict[str, float]:
        """Growth of the tokenizer's counters, by their short names."""
        totals = {name: self.total(f"trb_{name}_total") for name in COUNTS}
        return {name: total for name, total in totals.items() if total is not None}

    def labels(self) -> dict[str, float]:
        """Growth of answers by label, type or outcome."""
        return merged(self.by(label, name) for name, label in LABELS.items())

    def refused(self) -> dict[str, float]:
        """Growth of refused texts, images and sounds by reason."""
        return merged(self.by("reason", name) for name in REFUSED)

    def means(self) -> dict[str, float]:
        """Mean of each histogram of answers, by its short name."""
        totals = {name: (self.total(f"trb_{name}_sum"), self.total(f"trb_{name}_count")) for name in MEANS}
        return {name: value / count for name, (value, count) in totals.items() if count and value is not None}

    def phases(self) -> dict[str, Latency]:
        """Time of each phase of an execution, by its name; percentiles interpolated between buckets."""
        counts = self.by("phase", "trb_phase_seconds_count")
        sums = self.by("phase", "trb_phase_seconds_sum")
        return {phase: self._phase(phase, count, sums) for phase, count in counts.items() if count}

    def _phase(self, phase: str, count: float, sums: Mapping[str, float]) -> Latency:
        buckets = self.by("le", "trb_phase_seconds_bucket", phase=phase)
        p50, p99 = (quantile(share, buckets) for share in (0.5, 0.99))
        return Latency(
            mean=sums[phase] / count * 1000 if phase in sums else None,
            p50=None if p50 is None else p50 * 1000,
            p99=None if p99 is None else p99 * 1000,
        )


def per_second(counts: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Rates of counts that are not 0."""
    return {key: count / seconds for key, count in counts.items() if count}


def merged(counts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Sums by key."""
    sums: dict[str, float] = {}
    for each in counts:
        for key, value in each.items():
            sums[key] = sums.get(key, 0.0) + value
    return sums
