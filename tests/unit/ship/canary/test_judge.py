"""Verdicts: what breaks a rule at once, what at the end of a step, what never."""

from __future__ import annotations

import random

import pytest

from triton_repo_builder.ship.canary import judge, sample
from triton_repo_builder.ship.canary.sample import Answers, Sample, Side
from triton_repo_builder.ship.targets import canary_rules
from triton_repo_builder.ship.targets.spec import Rules

RULES = {rule.name: rule for rule in canary_rules.of(Rules())}


def counted(requests: int, failures: int) -> Side:
    return Side(sample=Sample(requests=requests, failures=failures))


def timed(seconds: list[float]) -> Side:
    return Side(sample=sample.of(seconds, 0))


def labelled(counts: dict[str, float]) -> Side:
    key = ("bert_post", "answers")
    return Side(counts={key: counts}, texts={key: sum(counts.values())})


@pytest.mark.parametrize(
    ("stable", "canary", "final", "broken"),
    [
        ((1000, 0), (2, 2), False, True),  # always: two requests are enough
        ((1000, 0), (1, 1), False, False),
        ((1000, 0), (20, 1), False, False),  # 5 %, by chance
        ((1000, 0), (20, 1), True, True),  # the share itself counts at the end
        ((1000, 0), (200, 20), False, True),
        ((1000, 100), (200, 20), False, False),  # the traffic is bad, not the canary
        ((1000, 100), (200, 20), True, False),
        ((1000, 0), (200, 2), True, False),  # the limit itself
        ((0, 0), (200, 20), False, True),
    ],
)
def test_failures(stable: tuple[int, int], canary: tuple[int, int], final: bool, broken: bool) -> None:
    verdict = judge.failures(
        RULES["failures"], judge.TRAFFIC, counted(*stable), counted(*canary), final=final
    )
    assert verdict.broken == broken
    assert verdict.value == pytest.approx(
        canary[1] / canary[0] - (stable[1] / stable[0] if stable[0] else 0.0)
    )


def test_no_requests_are_no_success() -> None:
    verdict = judge.failures(RULES["failures"], judge.TRAFFIC, counted(5, 0), counted(0, 0), final=True)
    assert verdict.state == judge.NONE
    assert judge.latency(RULES["p99"], judge.TRAFFIC, Side(), timed([0.1])).state == judge.NONE
    assert judge.latency(RULES["p99"], judge.TRAFFIC, timed([0.1]), Side()).state == judge.NONE
    assert judge.answers(RULES["answers"], judge.SHADOW, Answers(), final=True).state == judge.NONE


def spread(times: float, number: int, seed: int) -> list[float]:
    """Times around 20 ms with a tail, as a server under load has them."""
    chance = random.Random(seed)
    return [times * 0.02 * chance.lognormvariate(0.0, 0.1) for _ in range(number)]


def test_slower_by_half_is_broken() -> None:
    verdict = judge.latency(
        RULES["p99"], judge.TRAFFIC, timed(spread(1.0, 1800, 1)), timed(spread(1.5, 200, 2))
    )
    assert verdict.broken
    assert verdict.value == pytest.approx(1.5, rel=0.15)
    assert "ms, 1." in judge.words(verdict)
    few = judge.latency(RULES["p99"], judge.TRAFFIC, timed(spread(1.0, 90, 1)), timed(spread(1.5, 10, 2)))
    assert not few.broken  # two of ten requests


def test_equal_servers_seldom_differ() -> None:
    """1,000 pairs, each looked at once: chance may break the rule for one of them."""
    broken = sum(
        judge.latency(
            RULES["p99"],
            judge.TRAFFIC,
            timed(spread(1.0, 300, 2 * seed)),
            timed(spread(1.0, 200, 2 * seed + 1)),
        ).broken
        for seed in range(1000)
    )
    assert broken <= 1


def test_one_slow_request_is_chance() -> None:
    verdict = judge.latency(
        RULES["p99"], judge.TRAFFIC, timed([0.02] * 200), timed([0.02] * 196 + [1.0, 1.0, 1.0, 1.0])
    )
    assert verdict.value is not None
    assert verdict.value > RULES["p99"].limit
    assert verdict.state == judge.CHANCE


def test_noise_hides_a_p99_but_no_median() -> None:
    """Slower by half on a machine whose noise makes every p99 the same."""
    chance = random.Random(7)

    def noisy(times: float, number: int) -> list[float]:
        return [0.4 if chance.random() < 0.05 else times for _ in range(number)]

    stable, canary = timed(noisy(0.1, 180)), timed(noisy(0.15, 40))
    verdict = judge.latency(RULES["p99"], judge.TRAFFIC, stable, canary)
    assert verdict.broken
    assert judge.words(verdict).startswith("median 1")
    # A response cache fills with the traffic: the canary's is emptier, and the median says nothing.
    assert not judge.latency(RULES["p99"], judge.TRAFFIC, stable, canary, quantiles=(0.99,)).broken
    equal = timed(noisy(0.1, 40))
    assert not judge.latency(RULES["p99"], judge.TRAFFIC, stable, equal).broken


def test_labels() -> None:
    rule = RULES["labels"]
    same = judge.labels(rule, judge.TRAFFIC, labelled({"a": 900, "b": 900}), labelled({"a": 100, "b": 105}))
    assert same.state == judge.OK
    other = judge.labels(rule, judge.TRAFFIC, labelled({"a": 900, "b": 900}), labelled({"a": 190, "b": 10}))
    assert other.broken
    assert "answers of bert post" not in judge.words(other)
    assert "answers of bert_post" in judge.words(other)
    few = judge.labels(rule, judge.TRAFFIC, labelled({"a": 900, "b": 900}), labelled({"a": 9, "b": 2}))
    assert few.state == judge.UNSURE
    none = judge.labels(rule, judge.TRAFFIC, labelled({"a": 900}), Side())
    assert (none.state, "no model counts" in none.detail) == (judge.NONE, True)
    empty = judge.labels(rule, judge.TRAFFIC, labelled({"a": 900}), labelled({}))
    assert empty.state == judge.NONE


def test_the_worst_distribution_is_shown() -> None:
    stable, canary = labelled({"a": 900, "b": 900}), labelled({"a": 190, "b": 10})
    calm = ("bert_tokenizer", "text_tokens")
    verdict = judge.labels(
        RULES["labels"],
        judge.TRAFFIC,
        Side(counts={**stable.counts, calm: {"4": 900, "8": 900}}, texts={**stable.texts, calm: 1800}),
        Side(counts={**canary.counts, calm: {"4": 100, "8": 100}}, texts={**canary.texts, calm: 200}),
    )
    assert verdict.broken
    assert "bert_post" in verdict.detail


@pytest.mark.parametrize(
    ("compared", "different", "final", "broken"),
    [(10, 1, False, False), (10, 1, True, True), (10, 10, False, True), (100, 2, True, False)],
)
def test_answers(compared: int, different: int, final: bool, broken: bool) -> None:
    verdict = judge.answers(
        RULES["answers"],
        judge.GOLDEN,
        Answers(compared=compared, different=different, example="case c"),
        final=final,
    )
    assert verdict.broken == broken
    assert "case c" in judge.words(verdict)


def test_all_rules_name_their_sources() -> None:
    verdicts = judge.all_rules(
        tuple(RULES.values()),
        traffic=(counted(10, 0), counted(10, 0)),
        golden=(counted(5, 0), counted(5, 0)),
        compared=Answers(compared=5),
        shadow=Answers(compared=7),
        final=True,
        whole=True,
        cached=False,
    )
    assert [(verdict.rule.name, verdict.source) for verdict in verdicts] == [
        ("failures", judge.TRAFFIC),
        ("failures", judge.GOLDEN),
        ("p99", judge.TRAFFIC),
        ("p99", judge.GOLDEN),
        ("labels", judge.TRAFFIC),
        ("answers", judge.GOLDEN),
        ("answers", judge.SHADOW),
    ]


def test_rare_labels_do_not_take_an_equal_version_back() -> None:
    """Of many rare labels some are missing on one side by chance, which makes a large index."""
    draw = random.Random(1)
    shares = {"a": 0.9, "b": 0.04, "c": 0.02, "d": 0.01, "e": 0.01, "f": 0.01, "g": 0.005, "h": 0.005}
    states = set()
    for _ in range(60):
        counts: list[dict[str, float]] = [dict.fromkeys(shares, 0.0) for _ in range(2)]
        for _ in range(60):
            for side in counts:
                for name in draw.choices(list(shares), list(shares.values()), k=4):
                    side[name] += 1
            verdict = judge.labels(RULES["labels"], judge.TRAFFIC, *map(labelled, counts))
            assert not verdict.broken, judge.words(verdict)
            states.add(verdict.state)
    assert judge.CHANCE in states
    moved = {**dict.fromkeys(shares, 0.0), "a": 180.0, "b": 60.0}
    assert judge.labels(RULES["labels"], judge.TRAFFIC, labelled(counts[0]), labelled(moved)).broken
