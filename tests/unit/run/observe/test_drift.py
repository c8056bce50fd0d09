from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from triton_repo_builder import repository
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import reference
from triton_repo_builder.repository.reference import TEXT_TOKENS, Distribution, Reference
from triton_repo_builder.run.observe import drift, exposition
from triton_repo_builder.run.observe.exposition import Page

SHARES = {"8": 0.2, "16": 0.5, "32": 0.3}
LABELS = 'model="bert_tokenizer",version="1"'


def page(
    counts: dict[str, int], *, texts: int | None = 2000, metric: str = TEXT_TOKENS, unknown: int = 0
) -> Page:
    """A metrics page with a reference, and texts by the bucket of their length."""
    lines = [
        f'trb_reference_share{{{LABELS},metric="{metric}",bucket="{name}"}} {share}'
        for name, share in SHARES.items()
    ]
    if texts is not None:
        lines.append(f'trb_reference_texts{{{LABELS},metric="{metric}"}} {texts}')
    below = 0
    for name in reference.buckets(TEXT_TOKENS):
        below += counts.get(name, 0)
        lines.append(f'trb_text_tokens_bucket{{{LABELS},le="{name}"}} {below}')
    return Page(exposition.read("\n".join(lines)))


def test_psi_is_the_sum_over_the_buckets() -> None:
    assert drift.psi({"a": 0.5, "b": 0.5}, {"a": 0.5, "b": 0.5}) == 0
    expected = 0.25 * math.log(0.75 / 0.5) - 0.25 * math.log(0.25 / 0.5)
    assert drift.psi({"a": 0.5, "b": 0.5}, {"a": 0.75, "b": 0.25}) == pytest.approx(expected)


def test_an_empty_bucket_does_not_make_it_infinite() -> None:
    assert drift.psi({"a": 1.0}, {"b": 1.0}) == pytest.approx(2 * (1 - 0.0001) * math.log(10_000))


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ({"8": 40, "16": 100, "32": 60}, drift.STABLE_WORD),
        ({"8": 80, "16": 90, "32": 30}, drift.MODERATE_WORD),
        ({"64": 200}, drift.DRIFTED_WORD),
        ({"64": 20}, drift.FEW_TEXTS),
        ({"64": 40}, drift.DRIFTED_WORD),
        ({"8": 20, "16": 15, "32": 5}, drift.FEW_TEXTS),
        ({}, drift.FEW_TEXTS),
    ],
)
def test_verdicts(counts: dict[str, int], verdict: str) -> None:
    [comparison] = drift.compare(page(counts))
    assert (comparison.verdict, comparison.texts) == (verdict, sum(counts.values()))
    assert comparison.needed == drift.LEAST_TEXTS
    assert (comparison.psi is None) == (not counts)


def test_a_small_reference_never_gives_a_verdict() -> None:
    [comparison] = drift.compare(page({"64": 100_000}, texts=8))
    assert (comparison.verdict, comparison.needed) == (drift.SMALL_REFERENCE, None)
    [comparison] = drift.compare(page({"64": 100_000}, texts=50))
    assert (comparison.verdict, comparison.needed) == (drift.DRIFTED_WORD, 200), "2 / (0.05 - 2 / 50)"


def test_chance_alone_seldom_exceeds_the_limit_of_drift() -> None:
    """Reference and traffic are both samples of one distribution, as small as the rule allows."""
    chance = random.Random(7)
    names, weights = [str(number) for number in range(6)], [1, 4, 9, 9, 4, 1]

    def sample(size: int) -> dict[str, float]:
        return reference.shares(names, chance.choices(names, weights, k=size))

    exceeded = 0
    for _ in range(300):
        stored = sample(400)
        comparison = drift.Comparison(
            model="m",
            version="1",
            metric="answers",
            reference=stored,
            reference_texts=400,
            current={},
            texts=0,
        )
        assert comparison.needed is not None
        exceeded += drift.psi(stored, sample(comparison.needed)) > drift.DRIFTED
    assert exceeded <= 3


def test_an_enormous_shift_counts_before_there_are_texts_for_any_psi() -> None:
    shares = {"4": 0.01, "8": 0.03, "16": 0.17, "32": 0.43, "64": 0.28, "128": 0.07, "256": 0.0, "512": 0.01}
    comparison = drift.Comparison(
        model="m",
        version="1",
        metric=TEXT_TOKENS,
        reference=shares,
        reference_texts=420,
        current={"256": 1.0},
        texts=104,
    )
    assert comparison.needed is not None
    assert comparison.texts < comparison.needed
    assert comparison.verdict == drift.DRIFTED_WORD
    assert replace(comparison, texts=29).verdict == drift.FEW_TEXTS
    assert replace(comparison, current={**shares, "32": 0.53, "64": 0.18}).verdict == drift.FEW_TEXTS
    assert replace(comparison, reference_texts=12).verdict == drift.SMALL_REFERENCE


@pytest.mark.parametrize(
    "shares",
    [(0.95, 0.05), (0.87, 0.13), (0.8, 0.2), (0.5, *[0.05] * 10), (0.01, 0.03, 0.17, 0.44, 0.28, 0.07)],
)
def test_chance_alone_seldom_is_an_enormous_shift(shares: tuple[float, ...]) -> None:
    """A bucket that a few texts leave empty adds much to the PSI."""
    chance = random.Random(8)
    names = [str(number) for number in range(len(shares))]
    drifted = 0
    for texts in (30, 40, 60, 90) * 100:
        comparison = drift.Comparison(
            model="m",
            version="1",
            metric="answers",
            reference=dict(zip(names, shares, strict=True)),
            reference_texts=2000,
            current=reference.shares(names, chance.choices(names, shares, k=texts)),
            texts=texts,
        )
        drifted += comparison.verdict == drift.DRIFTED_WORD
    assert drifted <= 1


def test_labels_have_the_order_of_the_reference() -> None:
    def series(*names: str) -> str:
        model = f'{LABELS},metric="answers"'
        return "\n".join(f'trb_reference_share{{{model},bucket="{name}"}} 0.25' for name in names)

    counts = "\n".join(f'trb_answers_total{{{LABELS},label="{name}"}} 50' for name in ("new", "b", "a"))
    served = Page(exposition.read(f"{series('other', 'c', 'b', 'a')}\n{counts}"))
    [comparison] = drift.compare(served)
    assert list(comparison.reference) == ["a", "b", "c", "other"], "a page has no order"
    assert list(comparison.current) == ["a", "b", "c", "other", "new"]
    assert comparison.current["c"] == 0
    [comparison] = drift.compare(served, stored=Page(exposition.read(series("b", "a"))))
    assert (list(comparison.reference), list(comparison.current)) == (["b", "a"], ["b", "a", "new"])


def test_counts_since_an_earlier_page() -> None:
    before, after = page({"16": 1000}), page({"16": 1000, "64": 150})
    [comparison] = drift.compare(after, before)
    assert (comparison.texts, comparison.current["64"]) == (150, 1.0)
    assert drift.compare(after)[0].texts == 1150


def test_a_restart_between_two_pages_counts_from_0() -> None:
    [comparison] = drift.compare(page({"32": 120}), page({"16": 1000}))
    assert comparison.current == {**dict.fromkeys(comparison.current, 0.0), "32": 1.0}
    assert comparison.texts == 120


def test_bounds_of_prometheus_3_are_the_same_buckets() -> None:
    text = f'trb_reference_share{{{LABELS},metric="text_tokens",bucket="8.0"}} 1\n'
    text += (
        f'trb_text_tokens_bucket{{{LABELS},le="8.0"}} 200\ntrb_text_tokens_bucket{{{LABELS},le="+Inf"}} 200'
    )
    [comparison] = drift.compare(Page(exposition.read(text)))
    assert (comparison.verdict, comparison.reference_texts) == (drift.STABLE_WORD, math.inf)


def test_unknown_tokens_and_answers_are_counted_by_their_own_counters() -> None:
    text = "\n".join(
        [
            f'trb_reference_share{{{LABELS},metric="unknown_tokens",bucket="unknown"}} 0.01',
            f'trb_reference_share{{{LABELS},metric="unknown_tokens",bucket="known"}} 0.99',
            f'trb_reference_share{{{LABELS},metric="answers",bucket="good"}} 1',
            f"trb_texts_total{{{LABELS}}} 300",
            f"trb_tokens_total{{{LABELS}}} 3000",
            f"trb_unknown_tokens_total{{{LABELS}}} 1500",
            f'trb_answers_total{{{LABELS},label="good"}} 100',
            f'trb_answers_total{{{LABELS},label="bad"}} 100',
        ]
    )
    unknown, answers = drift.compare(Page(exposition.read(text)))
    assert (unknown.metric, unknown.texts, dict(unknown.current)) == (
        "unknown_tokens", 300, {"unknown": 0.5, "known": 0.5},
    )  # fmt: skip
    assert (answers.texts, dict(answers.current)) == (200, {"good": 0.5, "bad": 0.5})
    assert {unknown.verdict, answers.verdict} == {drift.DRIFTED_WORD}


def test_nothing_to_compare_is_an_error_with_its_reason() -> None:
    counted = Page(exposition.read(f"trb_texts_total{{{LABELS}}} 3"))
    for text in (counted, Page()):
        with pytest.raises(TrbError) as caught:
            drift.need(drift.compare(text), text, "http://server:8002/metrics")
        assert (caught.value.code, caught.value.where) == (Code.NOT_FOUND, "http://server:8002/metrics")
        assert "--metrics off" in caught.value.message


# --- references of a repository


def stored(root: Path, text: str) -> repository.Repository:
    folder = root / "bert_tokenizer" / "1"
    folder.mkdir(parents=True)
    (folder.parent / "config.pbtxt").write_text('backend: "python"\n')
    (folder / "model.py").write_text("")
    (folder / reference.FILE).write_text(text)
    return repository.read(root)


def test_references_of_a_repository_replace_the_server_s(tmp_path: Path) -> None:
    file = Reference(source="x", distributions={TEXT_TOKENS: Distribution(texts=500, shares={"64": 1.0})})
    samples = drift.of_repository(stored(tmp_path, reference.dump(file)))
    served = page({"64": 200})
    [comparison] = drift.compare(served, stored=Page(samples))
    assert (comparison.verdict, comparison.reference_texts) == (drift.STABLE_WORD, 500)
    assert drift.compare(served)[0].verdict == drift.DRIFTED_WORD


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON: Expecting value"),
        ('{"schema', "is not JSON: Unterminated string"),
        (json.dumps({"schema": 1}), "lacks the field 'source'"),
    ],
)
def test_a_broken_reference_of_a_repository_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        drift.of_repository(stored(tmp_path, text))
    assert caught.value.code is Code.REPOSITORY_UNREADABLE
    assert caught.value.message.startswith(message)
    assert caught.value.where == str(tmp_path / "bert_tokenizer" / "1" / reference.FILE)


def test_a_repository_without_references_has_none(tmp_path: Path) -> None:
    read = stored(tmp_path, "{}")
    (tmp_path / "bert_tokenizer" / "1" / reference.FILE).unlink()
    assert drift.of_repository(read) == []
