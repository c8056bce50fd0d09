"""Drift: the population stability index (PSI) of a server's texts and answers against their reference.

PSI is the sum of (p - q) ln(p / q) over the buckets, of the shares p now and q in the reference. Chance alone
gives about (B - 1) / n for n texts in B buckets, and (B - 1) / m more for a reference of m texts. A limit
counts if that noise is at most a fifth of it. With fewer texts a PSI counts if it is far above chance: at
least ten times the noise, and 50 / n, which one bucket that is empty by chance seldom adds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Repository, reference
from triton_repo_builder.repository.reference import (
    ANSWERS,
    CONFIDENCE,
    TEXT_TOKENS,
    UNKNOWN_TOKENS,
    Distribution,
)
from triton_repo_builder.run.observe import exposition
from triton_repo_builder.run.observe.exposition import Page, Sample

FLOOR = 0.0001
"""Least share in the sum, so that an empty bucket does not make it infinite."""
MODERATE, DRIFTED = 0.1, 0.25
"""The usual limits of a PSI."""
NOISE = 0.2
"""Largest share of a limit that chance may make."""
LEAST_TEXTS = 100
FEWEST_TEXTS = 30
"""Texts from which on a PSI far above chance counts."""
TIMES_NOISE = 10
"""Least ratio of such a PSI and its noise."""
ONE_BUCKET = 50
"""Least product of such a PSI and the number n of texts. A bucket with the share q in the reference is empty
with probability (1 - q)^n, then adds (q - FLOOR) ln(q / FLOOR): less, if that is likelier than 0.001."""
STABLE_WORD, MODERATE_WORD, DRIFTED_WORD = "stable", "moderate", "drifted"
FEW_TEXTS, SMALL_REFERENCE = "too few texts", "reference too small"
SHARE, TEXTS = "trb_reference_share", "trb_reference_texts"
"""Gauges of the reference."""
COUNTERS: Mapping[str, str] = {
    TEXT_TOKENS: "trb_text_tokens_bucket",
    CONFIDENCE: "trb_answer_confidence_bucket",
    ANSWERS: "trb_answers_total",
}
ALL_TEXTS, ALL_TOKENS, ALL_UNKNOWN = "trb_texts_total", "trb_tokens_total", "trb_unknown_tokens_total"
REMEDY = "build with --reference FILE, texts like those to come, without --metrics off; load the model again"
ModelVersion = tuple[str, str]
Shares = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One metric of a model's version: its distribution now, and in the reference."""

    model: str
    version: str
    metric: str
    reference: Shares
    reference_texts: float
    """Infinite if the server does not say."""
    current: Shares
    """Empty without texts."""
    texts: int
    limit: float = DRIFTED
    """A larger PSI has drifted."""

    @property
    def psi(self) -> float | None:
        """The population stability index; None without texts."""
        return psi(self.reference, self.current) if self.texts else None

    @property
    def verdict(self) -> str:
        """One of the words above."""
        if self.needed is None:
            return SMALL_REFERENCE
        if self.psi is None:
            return FEW_TEXTS
        noise = self._freedom * (1 / self.texts + 1 / self.reference_texts)
        far = self.psi >= max(TIMES_NOISE * noise, ONE_BUCKET / self.texts)
        if self.texts < (FEWEST_TEXTS if far else self.needed):
            return FEW_TEXTS
        if self.psi > self.limit:
            return DRIFTED_WORD
        return MODERATE_WORD if self.psi > MODERATE and noise <= NOISE * MODERATE else STABLE_WORD

    @property
    def needed(self) -> int | None:
        """Texts from which on any PSI says something; None if it never does, with so small a reference."""
        room = NOISE * self.limit - self._freedom / self.reference_texts if self.reference_texts else 0.0
        if room <= 0:
            return None
        return max(LEAST_TEXTS, math.ceil(self._freedom / room - 1e-9))

    @property
    def _freedom(self) -> int:
        """Buckets whose shares are free: one follows from the others."""
        return max(1, sum(share > 0 for share in self.reference.values()) - 1)


def psi(reference: Shares, current: Shares) -> float:
    """The population stability index of two distributions."""
    total = 0.0
    for name in reference.keys() | current.keys():
        p, q = (max(shares.get(name, 0.0), FLOOR) for shares in (current, reference))
        total += (p - q) * math.log(p / q)
    return total


def compare(page: Page, before: Page | None = None, stored: Page | None = None) -> tuple[Comparison, ...]:
    """Compare a server's counts with the references, which are on its page or ``stored`` in a repository.

    With ``before``, counts are those since that page.
    """
    references: dict[tuple[str, str, str], dict[str, float]] = {}
    # A page has its series in any order, reference.json has labels in that of the model.
    shares = stored.select(SHARE) if stored else sorted(page.select(SHARE), key=_place)
    stored = stored or page
    for sample in shares:
        labels = sample.labels
        key = (labels.get("model", ""), labels.get("version", ""), labels.get("metric", ""))
        if key[2] in reference.METRICS and math.isfinite(sample.value):
            references.setdefault(key, {})[_named(key[2], labels.get("bucket", ""))] = sample.value
    order = {metric: place for place, metric in enumerate(reference.METRICS)}
    return tuple(
        _compared((page, before or Page()), key, references[key], stored)
        for key in sorted(references, key=lambda key: (key[0], len(key[1]), key[1], order[key[2]]))
    )


def _compared(
    pages: tuple[Page, Page], key: tuple[str, str, str], shares: Shares, stored: Page
) -> Comparison:
    model, version, metric = key
    counts, texts = counted(pages, (model, version), metric)
    total = sum(counts.values())
    names = (*shares, *sorted(counts.keys() - shares.keys()))
    stated = stored.total(TEXTS, model=model, version=version, metric=metric)
    return Comparison(
        model=model,
        version=version,
        metric=metric,
        reference=_ordered(metric, shares),
        reference_texts=math.inf if stated is None else stated,
        current=_ordered(metric, {name: counts.get(name, 0.0) / total for name in names} if total else {}),
        texts=round(texts) if total else 0,
    )


def counted(pages: tuple[Page, Page], model: ModelVersion, metric: str) -> tuple[dict[str, float], float]:
    """A server's count for each bucket of a metric, and the number of texts; of all versions if it is ""."""
    if metric == UNKNOWN_TOKENS:
        tokens, unknown, texts = (_total(pages, model, name) for name in (ALL_TOKENS, ALL_UNKNOWN, ALL_TEXTS))
        return {reference.UNKNOWN: unknown, reference.KNOWN: max(0.0, tokens - unknown)}, texts
    if metric == ANSWERS:
        counts = _grown(pages, model, COUNTERS[metric], "label")
        return counts, sum(counts.values())
    cumulative = _grown(pages, model, COUNTERS[metric], "le")
    below, counts = 0.0, {}
    for bound, count in sorted((_bound(name), count) for name, count in cumulative.items()):
        counts[reference.bucket(bound)] = max(0.0, count - below)
        below = max(below, count)
    return counts, below


def _grown(pages: tuple[Page, Page], model: ModelVersion, name: str, label: str) -> dict[str, float]:
    now, before = (page.by(label, name, **_labels(model)) for page in pages)
    return exposition.growth(before, now)


def _total(pages: tuple[Page, Page], model: ModelVersion, name: str) -> float:
    now, before = (page.total(name, **_labels(model)) or 0.0 for page in pages)
    return exposition.growth({"": before}, {"": now})[""]


def _labels(model: ModelVersion) -> dict[str, str]:
    return {"model": model[0], "version": model[1]} if model[1] else {"model": model[0]}


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf


def _place(sample: Sample) -> tuple[bool, str]:
    """Order of buckets: by name, ``other`` last."""
    bucket = sample.labels.get("bucket", "")
    return bucket == reference.OTHER, bucket


def _named(metric: str, bucket: str) -> str:
    """A bucket's name; Prometheus 3 writes the bound 4 as 4.0."""
    return reference.bucket(_bound(bucket)) if metric in reference.BOUNDS else bucket


def _ordered(metric: str, shares: Shares) -> dict[str, float]:
    """Buckets of a histogram by their bounds; the others as they are."""
    if metric not in reference.BOUNDS:
        return dict(shares)
    return dict(sorted(shares.items(), key=lambda item: _bound(item[0])))


def need(comparisons: Collection[Comparison], page: Page, where: str) -> None:
    """Raise ``TrbError`` NOT_FOUND if there is nothing to compare, with the reason."""
    if comparisons:
        return
    counts = any(name in page for name in (ALL_TEXTS, *COUNTERS.values()))
    raise TrbError(
        Code.NOT_FOUND,
        "no model has a reference distribution: built with --metrics off, or by an older trb"
        if counts
        else "no model counts its texts: built by an older trb, with --metrics off or elsewhere, "
        "or the server is too old for metrics of Python models",
        where=where,
        remedy=REMEDY,
    )


def of_repository(repository: Repository) -> list[Sample]:
    """The references of a repository's models, as a server exports them. Raises ``TrbError``."""
    samples: list[Sample] = []
    for model in repository.models:
        for version in model.versions:
            file = model.path / str(version) / reference.FILE
            try:
                stored = reference.load(file) if file.is_file() else None
            except OSError as error:
                raise files.unreadable(file, error) from None
            except ValueError as error:
                raise TrbError(
                    Code.REPOSITORY_UNREADABLE,
                    str(error),
                    where=str(file),
                    remedy="restore it (git checkout), or build again",
                ) from None
            samples += _samples(model.name, str(version), stored.distributions if stored else {})
    return samples


def _samples(model: str, version: str, distributions: Mapping[str, Distribution]) -> Iterator[Sample]:
    for metric, each in distributions.items():
        labels = {"model": each.model or model, "version": version, "metric": metric}
        yield Sample(TEXTS, labels, each.texts)
        for bucket, share in each.shares.items():
            yield Sample(SHARE, {**labels, "bucket": bucket}, share)
