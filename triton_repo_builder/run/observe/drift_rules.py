"""Prometheus' rules for drift: the same PSI as ``trb drift`` computes, and alerts."""

from __future__ import annotations

from triton_repo_builder.base import templates
from triton_repo_builder.repository import reference
from triton_repo_builder.repository.reference import ANSWERS, CONFIDENCE, TEXT_TOKENS, UNKNOWN_TOKENS
from triton_repo_builder.run.observe import drift

TEMPLATE = "monitoring_drift.yml.jinja"
SOON = "5m"
"""The short window: a sudden change in steady traffic shows there first."""
WINDOW = "1h"


def render(window: str = WINDOW) -> str:
    """A rules file: PSI within ``SOON`` and within the window, by model, version and metric."""
    return templates.render(
        TEMPLATE,
        windows=tuple(dict.fromkeys((SOON, window))),
        texts={
            TEXT_TOKENS: "trb_text_tokens_count",
            UNKNOWN_TOKENS: drift.ALL_TEXTS,
            ANSWERS: drift.COUNTERS[ANSWERS],
            CONFIDENCE: "trb_answer_confidence_count",
        },
        histograms={metric: drift.COUNTERS[metric] for metric in reference.BOUNDS},
        bounds={metric: _pairs(reference.buckets(metric)) for metric in reference.BOUNDS},
        tokens=drift.ALL_TOKENS,
        unknown=drift.ALL_UNKNOWN,
        answers=drift.COUNTERS[ANSWERS],
        share=drift.SHARE,
        reference_texts=drift.TEXTS,
        floor=f"{drift.FLOOR:.4f}",
        noise=f"{drift.NOISE * drift.DRIFTED:g}",
        moderate_noise=f"{drift.NOISE * drift.MODERATE:g}",
        least=drift.LEAST_TEXTS,
        fewest=drift.FEWEST_TEXTS,
        times_noise=drift.TIMES_NOISE,
        one_bucket=drift.ONE_BUCKET,
        moderate=drift.MODERATE,
        drifted=drift.DRIFTED,
    )


def _pairs(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Each bucket: the bucket below (empty for the first), its own name."""
    return tuple(zip(("", *names[:-1]), names, strict=True))
