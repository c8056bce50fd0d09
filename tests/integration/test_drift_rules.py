"""The rules of drift in promtool's simulated time, on lengths of real texts by a real tokenizer."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import languages
from tests.support.prometheus import promtool
from triton_repo_builder.model.read import tokenizer
from triton_repo_builder.repository import reference
from triton_repo_builder.repository.reference import CONFIDENCE, TEXT_TOKENS
from triton_repo_builder.run.observe import drift, drift_rules

pytestmark = pytest.mark.prometheus
STEP = 30
"""Seconds between two scrapes."""
HOUR = 3600 // STEP
LATER = 5 * 60 // STEP
MODEL = 'model="m",version="1"'
SAME, OTHER = (0.7, 0.3), (0.2, 0.8)
"""Shares of two labels."""
Lengths = Sequence[tuple[int, int]]
"""Tokens of each text, and the unknown ones among them."""


@pytest.fixture(scope="module")
def lengths(minilm_int8: Path) -> Callable[[Sequence[str]], Lengths]:
    library = tokenizer.load((minilm_int8 / "tokenizer.json").read_text())
    library.no_padding()
    library.no_truncation()
    unknown = library.token_to_id("[UNK]")

    def measured(texts: Sequence[str]) -> Lengths:
        ids = [library.encode(text).ids for text in texts]
        return [(len(row), row.count(unknown)) for row in ids]

    return measured


class Traffic:
    """Texts at a rate, drawn at random: the counters of a server at each scrape."""

    def __init__(self, seed: int, per_step: float) -> None:
        self._chance, self._rate = random.Random(seed), per_step
        self._totals: Counter[str] = Counter()
        self.scrapes: list[Counter[str]] = [Counter()]

    def add(self, steps: int, texts: Lengths, labels: Sequence[float]) -> None:
        """So many steps of texts, drawn anew from these."""
        for _ in range(steps):
            for _ in range(self._poisson()):
                self._count(*self._chance.choice(texts), labels)
            self.scrapes.append(Counter(self._totals))

    def _poisson(self) -> int:
        elapsed, count = self._chance.expovariate(self._rate), 0
        while elapsed < 1:
            elapsed, count = elapsed + self._chance.expovariate(self._rate), count + 1
        return count

    def _count(self, tokens: int, unknown: int, labels: Sequence[float]) -> None:
        answer = self._chance.choices(("good", "bad"), labels)[0]
        score = self._chance.betavariate(8, 2)
        self._totals["trb_texts_total{}"] += 1
        self._totals["trb_tokens_total{}"] += tokens
        self._totals["trb_unknown_tokens_total{}"] += unknown
        self._totals[f'trb_answers_total{{label="{answer}",}}'] += 1
        for metric, value in ((TEXT_TOKENS, tokens), (CONFIDENCE, score)):
            self._totals[f"trb_{metric}_count{{}}"] += 1
            for bound in (*reference.BOUNDS[metric], float("inf")):
                self._totals[f'trb_{metric}_bucket{{le="{reference.bucket(bound)}",}}'] += value <= bound

    def series(self) -> Iterator[dict[str, str]]:
        """As promtool takes them."""
        for name in self._totals:
            values = " ".join(str(scrape[name]) for scrape in self.scrapes)
            yield {"series": name.replace("{", f"{{{MODEL},"), "values": values}


def shares(texts: Lengths) -> dict[str, dict[str, float]]:
    tokens, unknown = sum(count for count, _ in texts), sum(count for _, count in texts)
    chance = random.Random(5)
    return {
        "text_tokens": reference.histogram(TEXT_TOKENS, [count for count, _ in texts]),
        "unknown_tokens": {"unknown": unknown / tokens, "known": 1 - unknown / tokens},
        "answers": {"good": SAME[0], "bad": SAME[1]},
        "answer_confidence": reference.histogram(CONFIDENCE, [chance.betavariate(8, 2) for _ in range(500)]),
    }


def stored(texts: Lengths, scrapes: int) -> Iterator[dict[str, str]]:
    """The gauges of the reference."""
    for metric, each in shares(texts).items():
        labels = f'{MODEL},metric="{metric}"'
        count = 500 if metric.startswith("answer") else len(texts)
        yield {"series": f"trb_reference_texts{{{labels}}}", "values": f"{count}x{scrapes}"}
        for name, share in each.items():
            series = f'trb_reference_share{{{labels},bucket="{name}"}}'
            yield {"series": series, "values": f"{share:.6f}x{scrapes}"}


def check(
    folder: Path, traffic: Traffic, texts: Lengths, expected: Mapping[str, tuple[str, Sequence[float]]]
) -> None:
    """Evaluate the rules on the traffic; ``expected``: PromQL → time, and its values."""
    (folder / "drift.yml").write_text(drift_rules.render())
    queries: list[dict[str, Any]] = [
        {
            "expr": expression,
            "eval_time": at,
            "exp_samples": [{"labels": "{}", "value": value} for value in values],
        }
        for expression, (at, values) in expected.items()
    ]
    test = {
        "interval": f"{STEP}s",
        "input_series": [*traffic.series(), *stored(texts, len(traffic.scrapes))],
        "promql_expr_test": queries,
    }
    document = {"rule_files": ["drift.yml"], "evaluation_interval": f"{STEP}s", "tests": [test]}
    (folder / "test.yml").write_text(json.dumps(document))
    promtool("test", "rules", folder / "test.yml")


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    for window in ("1h", "6h"):
        (tmp_path / "drift.yml").write_text(drift_rules.render(window))
        assert "SUCCESS" in promtool("check", "rules", tmp_path / "drift.yml")


@pytest.mark.parametrize(
    ("others", "metric"),
    [
        (languages.GERMAN, "text_tokens"),
        (languages.JAPANESE, "unknown_tokens"),
        (languages.LONG, "text_tokens"),
        (languages.ENGLISH, "answers"),
    ],
)
def test_an_hour_of_the_same_texts_is_silent_and_others_alert_within_five_minutes(
    others: Sequence[str], metric: str, lengths: Callable[[Sequence[str]], Lengths], tmp_path: Path
) -> None:
    texts = lengths(languages.ENGLISH)
    traffic = Traffic(seed=1, per_step=2 * STEP)
    traffic.add(HOUR, lengths(languages.ENGLISH), SAME)
    traffic.add(LATER, lengths(others), OTHER if metric == "answers" else SAME)
    firing = f'ALERTS{{alertname="TrbDrift",alertstate="firing",metric="{metric}",window="5m"}}'
    expected = {
        'count(trb:drift:psi{window="1h"})': ("60m", [4]),
        "count(count_over_time(ALERTS[1h]))": ("60m", []),
        f"count({firing})": ("65m", [1]),
    }
    check(tmp_path, traffic, texts, expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_more_hours_of_the_same_texts_are_silent(
    seed: int, lengths: Callable[[Sequence[str]], Lengths], tmp_path: Path
) -> None:
    traffic = Traffic(seed=seed, per_step=STEP / 2)
    traffic.add(HOUR, lengths(languages.ENGLISH), SAME)
    expected = {"count(count_over_time(ALERTS[1h]))": ("60m", list[float]())}
    check(tmp_path, traffic, lengths(languages.ENGLISH), expected)


def test_the_rules_compute_the_index_of_trb_drift(
    lengths: Callable[[Sequence[str]], Lengths], tmp_path: Path
) -> None:
    texts, traffic = lengths(languages.ENGLISH), Traffic(seed=9, per_step=STEP)
    traffic.add(HOUR // 2, lengths(languages.GERMAN), OTHER)
    last = traffic.scrapes[-1]
    counts = [last[f'trb_text_tokens_bucket{{le="{name}",}}'] for name in reference.buckets(TEXT_TOKENS)]
    total = last["trb_texts_total{}"]
    current = {
        name: (count - below) / total
        for name, count, below in zip(reference.buckets(TEXT_TOKENS), counts, [0, *counts[:-1]], strict=True)
    }
    bad = last['trb_answers_total{label="bad",}'] / total
    indices = {
        "text_tokens": drift.psi(shares(texts)["text_tokens"], current),
        "answers": drift.psi(shares(texts)["answers"], {"good": 1 - bad, "bad": bad}),
    }
    check(
        tmp_path,
        traffic,
        texts,
        {
            f'max(abs(trb:drift:psi{{metric="{metric}",window="1h"}} - {index:.6f}) < bool 0.001)': (
                "30m",
                [1],
            )
            for metric, index in indices.items()
        },
    )


def test_an_enormous_shift_of_few_texts_alerts(
    lengths: Callable[[Sequence[str]], Lengths], tmp_path: Path
) -> None:
    texts, traffic = lengths(languages.ENGLISH), Traffic(seed=3, per_step=STEP / 60)
    traffic.add(HOUR, lengths(languages.LONG), SAME)
    alerts = 'ALERTS{alertname="TrbDrift",alertstate="firing"}'
    check(
        tmp_path,
        traffic,
        texts,
        {
            'sum(trb:drift:texts{metric="text_tokens",window="1h"}) < bool 100': ("60m", [1]),
            f'count({alerts[:-1]},metric="text_tokens",window="1h"}})': ("60m", [1]),
            f'count({alerts[:-1]},metric=~"answer.*"}})': ("60m", []),
            f'count({alerts[:-1]},window="5m"}})': ("60m", []),
        },
    )


def test_a_few_texts_say_nothing(lengths: Callable[[Sequence[str]], Lengths], tmp_path: Path) -> None:
    texts, traffic = lengths(languages.ENGLISH), Traffic(seed=3, per_step=STEP / 300)
    traffic.add(HOUR, lengths(languages.LONG), OTHER)
    check(
        tmp_path,
        traffic,
        texts,
        {
            "count(trb:drift:psi)": ("60m", []),
            'sum(trb:drift:texts{metric="text_tokens",window="1h"}) > bool 5': ("60m", [1]),
        },
    )
