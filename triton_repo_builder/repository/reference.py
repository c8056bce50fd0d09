"""Reference distributions (``reference.json``): an endpoint's texts and answers when it was built.

A server's own distributions are compared with them (``run/observe/drift.py``). The file is in the version
folder of the Python model that exports its shares as metrics.
"""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files

FILE = "reference.json"
SCHEMA = 1
TEXT_TOKENS, UNKNOWN_TOKENS = "text_tokens", "unknown_tokens"
ANSWERS, CONFIDENCE = "answers", "answer_confidence"
METRICS = (TEXT_TOKENS, UNKNOWN_TOKENS, ANSWERS, CONFIDENCE)
UNKNOWN, KNOWN = "unknown", "known"
"""Buckets of ``unknown_tokens``."""
OTHER = "other"
"""Bucket of all labels after the first ``MOST_LABELS``."""
MOST_LABELS = 50
LONGEST_LABEL = 100
INFINITE = "+Inf"
BOUNDS: Mapping[str, tuple[float, ...]] = {
    TEXT_TOKENS: (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
    CONFIDENCE: (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1),
}
"""Upper bounds of the buckets, as the server's own histograms have them."""
DIGITS = 6
"""Digits of a share in the file."""


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Shares of one metric, by bucket."""

    texts: int
    """Number of texts that were measured."""
    shares: Mapping[str, float]
    model: str = ""
    """Model that counts this metric on a server; empty: the one whose folder has the file."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The distributions of one endpoint, by metric."""

    source: str
    """Origin of the texts: a file's name, or the golden cases."""
    distributions: Mapping[str, Distribution]


def bucket(bound: float) -> str:
    """A bucket's name as Prometheus writes it in ``le``."""
    return INFINITE if math.isinf(bound) else f"{bound:g}"


def buckets(metric: str) -> tuple[str, ...]:
    """Names of a histogram's buckets, in order."""
    return (*map(bucket, BOUNDS[metric]), INFINITE)


def label(text: str) -> str:
    """A label as the server's metrics have it (``runtime/metrics.py``)."""
    return text[:LONGEST_LABEL] if text.isprintable() else OTHER


def histogram(metric: str, values: Sequence[float]) -> dict[str, float]:
    """Share of the values in each bucket; a value at an upper bound is in that bucket."""
    names = buckets(metric)
    return shares(names, (names[bisect.bisect_left(BOUNDS[metric], value)] for value in values))


def shares(names: Iterable[str], values: Iterable[str]) -> dict[str, float]:
    """Share of the values in each named bucket, the rest in ``other``."""
    counts = dict.fromkeys(names, 0)
    for value in values:
        name = value if value in counts else OTHER
        counts[name] = counts.get(name, 0) + 1
    total = sum(counts.values()) or 1
    return {name: round(count / total, DIGITS) for name, count in counts.items()}


def dump(reference: Reference) -> str:
    """The text of ``reference.json``, a metric a line."""
    lines = [
        f"  {json.dumps(metric)}: {json.dumps(_dumped(each), ensure_ascii=False)}"
        for metric, each in reference.distributions.items()
    ]
    source = json.dumps(reference.source, ensure_ascii=False)
    body = ",\n".join(lines)
    return f'{{\n "schema": {SCHEMA},\n "source": {source},\n "distributions": {{\n{body}\n }}\n}}\n'


def _dumped(distribution: Distribution) -> dict[str, Any]:
    model = {"model": distribution.model} if distribution.model else {}
    return {"texts": distribution.texts, **model, "shares": dict(distribution.shares)}


def load(path: Path) -> Reference:
    """Read ``reference.json``. Raises OSError, and ValueError if it is not one of ours."""
    content = files.read(path, files.LARGEST_DOCUMENT)
    try:
        document = files.load_json(content)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    try:
        if document["schema"] != SCHEMA:
            raise ValueError(f"has schema {document['schema']!r:.20}, this trb reads {SCHEMA}")
        return Reference(
            source=str(document["source"]),
            distributions={
                metric: _distribution(document["distributions"][metric])
                for metric in METRICS
                if metric in document["distributions"]
            },
        )
    except KeyError as error:
        raise ValueError(f"lacks the field {error}") from None
    except (TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"has a field of a wrong type: {error}") from None


def _distribution(document: Mapping[str, Any]) -> Distribution:
    shares = {str(name): float(share) for name, share in document["shares"].items()}
    if not shares or not all(0 <= share <= 1 for share in shares.values()):
        raise ValueError("has shares that are not from 0 to 1")
    return Distribution(texts=int(document["texts"]), shares=shares, model=str(document.get("model", "")))
