"""The order of steps, on a world that is scripted: no server, no time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client import NoAnswer
from triton_repo_builder.run.observe import exposition
from triton_repo_builder.run.observe.exposition import Page
from triton_repo_builder.ship.canary import sample, state
from triton_repo_builder.ship.canary.engine import BLIND, Engine, Look
from triton_repo_builder.ship.canary.golden import GoldenResults
from triton_repo_builder.ship.canary.sample import Answers, Reading, Sample, Side, Traffic
from triton_repo_builder.ship.canary.state import State
from triton_repo_builder.ship.targets import canary_rules
from triton_repo_builder.ship.targets.spec import Canary, Rules

SPEC = Canary(steps=(10, 50, 100), requests=100, hold=5.0, timeout=60.0)
CASES = 10


def fresh(spec: Canary = SPEC) -> State:
    return State(name="bert", deploy="deploy.toml", stable="s", canary="c", traefik="t", steps=spec.steps)


@dataclass
class Scripted:
    """A world whose second is a tick; ``rate`` requests a second arrive."""

    rate: float = 200.0
    failing: float = 0.0
    """Share of the canary's requests that fail."""
    slower: float = 1.0
    other: bool = False
    """Whether the canary's golden answers differ."""
    down: Callable[[str, float], bool] = lambda side, now: False
    blind: Callable[[float], bool] = lambda now: False
    commands: dict[float, str] = field(default_factory=dict)
    golden: bool = True
    refuses: bool = False
    """Whether Traefik does not follow."""
    time: float = 0.0
    weight: int = 0
    weights: list[int] = field(default_factory=list)
    saved: list[State] = field(default_factory=list)
    asked_for: int = 0
    labelled: bool = False
    """Whether the servers count labels: golden cases are all "rare", clients' texts half "a", half "b"."""
    other_labels: bool = False
    """Whether the canary answers "a" to every client."""
    busy: Callable[[float], bool] = lambda now: False
    """When golden cases take the canary three times as long."""
    hidden: bool = False
    """Whether Traefik's health check fails for the stable server."""
    unserved: float = 0.0
    """Share of the stable side's requests that Traefik answers with 502."""
    _split_at: float = 0.0
    _counted: list[tuple[float, str, str, float]] = field(default_factory=list)
    """When a server's metrics have a count, its side, label and number."""

    def now(self) -> float:
        return self.time

    def clock(self) -> float:
        return 1_000_000 + self.time

    def wait(self, seconds: float) -> None:
        self.time += seconds
        for side, share in (("stable", 1 - self.weight / 100), ("canary", self.weight / 100)):
            number = self.rate * seconds * share
            only = side == "canary" and self.other_labels
            self._count(side, {"a": number} if only else {"a": number / 2, "b": number / 2})

    def _count(self, side: str, labels: dict[str, float]) -> None:
        """A second later, as models deliver their counts."""
        self._counted += [(self.time + 1.0, side, label, number) for label, number in labels.items()]

    def _page(self, side: str) -> Page:
        if not self.labelled:
            return Page()
        counts: dict[str, float] = defaultdict(float)
        for due, of, label, number in self._counted:
            if of == side and due <= self.time:
                counts[label] += number
        lines = [f'trb_answers_total{{model="bert",label="{name}"}} {each}' for name, each in counts.items()]
        return Page(exposition.read("\n".join(lines)))

    def split(self, weight: int) -> None:
        if self.refuses:
            raise TrbError(Code.TIMED_OUT, "Traefik did not follow")
        self.time += 0.5
        self.weight, self._split_at = weight, self.time
        self.weights.append(weight)

    def read(self) -> Reading:
        if self.blind(self.time):
            raise NoAnswer("no answer: gone")
        return Reading(stable=self._page("stable"), canary=self._page("canary"))

    def traffic(self, before: Reading, after: Reading, own: GoldenResults) -> Traffic:
        seen = self.rate * (self.time - self._split_at)
        share = self.weight / 100
        counted = sample.between(before, after, endpoints={})
        stable = self._side(round(seen * (1 - share)), self.unserved, 1.0)
        stable = replace(stable, sample=replace(stable.sample, unserved=stable.sample.failures))
        canary = self._side(round(seen * share), self.failing, self.slower)
        return Traffic(
            stable=replace(counted.stable, sample=stable.sample),
            canary=replace(counted.canary, sample=canary.sample),
        )

    def _side(self, requests: int, failing: float, slower: float) -> Side:
        failed = round(requests * failing)
        return Side(sample=sample.of([0.02 * slower] * (requests - failed), failed))

    def ready(self, side: str) -> bool:
        return not self.down(side, self.time)

    def unreached(self) -> str:
        return "http://s" if self.hidden else ""

    def compare(self) -> GoldenResults:
        return self._golden(CASES if self.golden else 0)

    def ask(self, most: int, seconds: float) -> GoldenResults:
        self.wait(seconds)
        number = most if self.golden else 0
        self.asked_for += number
        return self._golden(number)

    def _golden(self, number: int) -> GoldenResults:
        for side in ("stable", "canary"):
            self._count(side, {"rare": number})
        return GoldenResults(
            stable=sample.of([0.02] * number, 0),
            canary=sample.of([0.02 * self.slower * (3.0 if self.busy(self.time) else 1.0)] * number, 0),
            answers=Answers(compared=number, different=number if self.other else 0, example="case c"),
            requests=number,
        )

    def save(self, state: State) -> None:
        self.saved.append(state)

    def asked(self) -> str:
        due = [at for at in self.commands if at <= self.time]
        return self.commands.pop(due[0]) if due else ""


def run(world: Scripted, spec: Canary = SPEC, current: State | None = None) -> tuple[State, list[Look]]:
    looks: list[Look] = []
    engine = Engine(spec, canary_rules.of(Rules()), world, looks.append)
    return engine.run(current or fresh(spec)), looks


def test_a_good_version_is_promoted() -> None:
    world = Scripted()
    result, looks = run(world)
    assert (result.result, result.weight) == (state.PROMOTED, 100)
    assert world.weights == [10, 50, 100]
    assert [step["percent"] for step in result.history] == [0, 10, 50, 100]
    assert all(step["seconds"] >= SPEC.hold for step in result.history[1:])
    assert all(step["canary"]["requests"] >= SPEC.requests for step in result.history[1:])
    assert world.saved[-1] == result
    assert result.latest is None
    # A look at the step that runs is there for trb canary status.
    assert [each.latest["percent"] for each in world.saved if each.latest and each.step == 1] == [50] * 5
    assert not world.asked_for
    assert {look.percent for look in looks} == {0, 10, 50, 100}
    # The last step has no stable traffic: its rules compare with the stable side of the first.
    assert result.baseline is not None
    assert result.history[-1]["stable"]["requests"] == result.baseline.sample.requests > 0


def test_requests_are_waited_for_beyond_hold() -> None:
    result, _ = run(Scripted(rate=20.0, golden=False), replace(SPEC, timeout=1000.0))
    assert result.result == state.PROMOTED
    assert result.history[1]["seconds"] >= 100 / (20 * 0.1)


def test_failures_take_it_back_at_once() -> None:
    world = Scripted(failing=0.2)
    result, _ = run(world)
    assert (result.result, result.weight) == (state.BACK, 0)
    assert world.weights == [10, 0]
    assert "rule failures" in result.reason
    assert result.back_s is not None
    assert result.back_s < SPEC.hold
    assert result.first_bad_s is not None
    assert result.first_bad_s <= result.back_s
    assert world.saved[-1] == result


def test_failures_that_chance_would_give_are_judged_at_the_end() -> None:
    world = Scripted(failing=0.02)
    result, _ = run(world)
    assert result.result == state.BACK
    assert result.history[-1]["seconds"] >= SPEC.hold


def test_golden_cases_show_it_before_any_traffic() -> None:
    for world, rule in ((Scripted(other=True), "answers"), (Scripted(slower=1.5), "p99")):
        result, _ = run(world)
        assert result.result == state.BACK
        assert f"rule {rule} (golden cases)" in result.reason
        assert world.weights == [0]
        assert [step["percent"] for step in result.history] == [0]


def test_slow_under_traffic_only() -> None:
    world = Scripted(slower=1.5, golden=False)
    result, _ = run(world)
    assert (result.result, "rule p99" in result.reason) == (state.BACK, True)
    assert world.weights == [10, 0]


def test_without_traffic_golden_cases_are_the_traffic() -> None:
    world = Scripted(rate=0.0)
    result, looks = run(world)
    assert result.result == state.PROMOTED
    assert world.asked_for == 3 * SPEC.requests
    assert all(step["golden_requests"] >= SPEC.requests for step in result.history[1:])
    assert any("golden cases make up" in look.note for look in looks)


def test_a_bad_version_without_traffic_does_not_pass() -> None:
    world = Scripted(rate=0.0)
    changed = replace(fresh(), step=0)  # beyond the look before any traffic

    def worse(side: str, now: float) -> bool:
        world.other = now > 3
        return False

    world.down = worse
    result, _ = run(world, current=changed)
    assert (result.result, "rule answers (golden cases)" in result.reason) == (state.BACK, True)


@pytest.mark.parametrize("rate", [0.5, 2.0, 8.0, 20.0, 60.0, 200.0])
@pytest.mark.parametrize("hold", [2.0, 5.0, 30.0])
def test_golden_cases_are_not_compared_with_clients_texts(rate: float, hold: float) -> None:
    """The servers count both; of the canary's texts most are golden cases if it has little traffic."""
    world = Scripted(rate=rate, labelled=True)
    result, _ = run(world, replace(SPEC, hold=hold, requests=200, timeout=1000.0))
    assert (result.result, result.reason) == (state.PROMOTED, "")
    assert bool(world.asked_for) == (rate * 0.1 * max(hold, 4) < 200)
    labels = [rule for step in result.history[1:] for rule in step["rules"] if rule["rule"] == "labels"]
    # None but those of clients.
    assert all(
        rule["requests"] <= rate * (step["seconds"] + 1)
        for step, rule in zip(result.history[1:], labels, strict=True)
    )
    assert rate < 20 or any(rule["value"] is not None for rule in labels)


@pytest.mark.parametrize("rate", [20.0, 60.0, 200.0])
def test_other_labels_are_seen_although_golden_cases_fill_up(rate: float) -> None:
    world = Scripted(rate=rate, labelled=True, other_labels=True)
    result, _ = run(world, replace(SPEC, hold=10.0, requests=400, timeout=1000.0))
    assert result.result == state.BACK
    assert "rule labels: answers of bert" in result.reason
    assert world.asked_for or rate > 20.0


def test_a_stable_server_that_traefik_does_not_reach_is_no_measure() -> None:
    with pytest.raises(TrbError, match="http://s fails its health check"):
        run(Scripted(hidden=True))
    slower = Scripted(hidden=True, slower=3.0, golden=False)  # refusals are fast: no reason to go there
    with pytest.raises(TrbError, match="http://s fails its health check"):
        run(slower)
    assert slower.weights == [10]
    world = Scripted(unserved=1.0)
    looks: list[Look] = []
    engine = Engine(SPEC, canary_rules.of(Rules()), world, looks.append)
    with pytest.raises(TrbError, match="Traefik reaches no stable server") as caught:
        engine.run(fresh())
    assert caught.value.code == Code.UNREACHABLE
    assert world.weights == [10]
    assert any("Traefik reaches no stable server" in look.note for look in looks)
    assert run(Scripted(unserved=0.4))[0].result == state.PROMOTED


@pytest.mark.parametrize("step", [0, 1, 2])
def test_no_step_ends_while_the_canary_is_down(step: int) -> None:
    """It is down for some seconds around the end of the hold, and back before it would be taken back."""
    world = Scripted()

    def down(side: str, now: float) -> bool:
        into = now - world._split_at
        return side == "canary" and len(world.weights) == step + 1 and 2 < into < 20

    world.down = down
    result, looks = run(world)
    assert result.result == state.PROMOTED
    assert result.history[step + 1]["seconds"] >= 20
    assert any(look.note == "the canary is not ready" for look in looks)
    late = Scripted(down=lambda side, now: side == "canary" and now > 50)
    result, _ = run(late, replace(SPEC, requests=100_000, timeout=60.0))
    assert (result.result, "the canary is not ready after 60 s" in result.reason) == (state.BACK, True)


def test_some_slow_seconds_are_no_slower_version() -> None:
    """Two equal servers on a busy machine: dozens of golden cases in one second are one event."""
    for begin in (7.0, 8.5):
        world = Scripted(rate=0.0, busy=lambda now, begin=begin: begin <= now < begin + 1.6)  # type: ignore[misc]
        result, looks = run(world)
        assert (result.result, result.reason) == (state.PROMOTED, ""), begin
        assert any(each.state == "by chance" for look in looks for each in look.verdicts), begin
    before_traffic = Scripted(busy=lambda now: now < 1.0)
    assert run(before_traffic)[0].result == state.PROMOTED
    always = Scripted(rate=0.0, busy=lambda now: now >= 7.0)
    result, _ = run(always)
    assert (result.result, "rule p99 (golden cases)" in result.reason) == (state.BACK, True)


def test_neither_traffic_nor_cases_ends_by_the_timeout() -> None:
    result, _ = run(Scripted(rate=1.0, golden=False))
    assert result.result == state.BACK
    assert "only 6 of 100 requests within 60 s" in result.reason


def test_it_goes_on_where_it_was() -> None:
    first = Scripted()
    _, looks = run(first)
    assert looks
    halfway = next(each for each in first.saved if each.step == 1)
    again = Scripted()
    result, _ = run(again, current=halfway)
    assert result.result == state.PROMOTED
    assert again.weights == [50, 100]
    assert result.baseline == halfway.baseline


def test_a_canary_that_dies_is_taken_back() -> None:
    world = Scripted(golden=False, down=lambda side, now: side == "canary" and now > 3)
    result, _ = run(world, replace(SPEC, requests=100_000))
    assert "not ready for 30 s" in result.reason
    assert world.weights == [10, 0]


def test_nothing_moves_to_a_stable_server_that_is_down() -> None:
    world = Scripted(failing=0.5, down=lambda side, now: side == "stable")
    with pytest.raises(TrbError) as caught:
        run(world, replace(SPEC, steps=(50, 100)))
    assert caught.value.code == Code.UNREACHABLE
    assert world.weights == [50]


def test_no_metrics_for_long_take_it_back() -> None:
    world = Scripted(blind=lambda now: now > 3)
    result, looks = run(world)
    assert f"no metrics for {BLIND:g} s" in result.reason
    assert any("metrics do not answer" in look.note for look in looks)
    short = Scripted(blind=lambda now: 3 < now < 10)
    assert run(short)[0].result == state.PROMOTED


def test_operators_command() -> None:
    world = Scripted(commands={3.0: state.PROMOTE})
    result, _ = run(world)
    assert (result.result, world.weights, result.reason) == (state.PROMOTED, [10, 100], "trb canary promote")
    world = Scripted(commands={3.0: state.ABORT})
    result, _ = run(world)
    assert (result.result, world.weights, result.weight) == (state.ABORTED, [10, 0], 0)


def test_traefik_that_does_not_follow_is_an_error_and_no_promotion() -> None:
    world = Scripted(refuses=True)
    with pytest.raises(TrbError) as caught:
        run(world)
    assert caught.value.code == Code.TIMED_OUT


def test_going_back_that_fails_is_said_with_its_reason() -> None:
    world = Scripted(failing=0.5)

    def refuse(side: str, now: float) -> bool:
        world.refuses = world.weight == 10
        return False

    world.down = refuse
    with pytest.raises(TrbError, match=r"rule failures.*Traefik did not follow"):
        run(world)
    assert world.saved[-1].result == state.RUNNING


def test_times_under_all_the_load_are_compared_with_those_under_almost_all() -> None:
    """After a first step of half the load, the last one is judged by failures and golden cases."""
    result, _ = run(Scripted(), replace(SPEC, steps=(50, 100)))
    rules = {(rule["rule"], rule["source"]): rule for rule in result.history[-1]["rules"]}
    assert rules["p99", "traffic"]["state"] == "no data"
    assert rules["failures", "traffic"]["state"] == "ok"
    result, _ = run(Scripted())
    rules = {(rule["rule"], rule["source"]): rule for rule in result.history[-1]["rules"]}
    assert rules["p99", "traffic"]["state"] == "ok"


def test_one_step_only() -> None:
    world = Scripted()
    result, _ = run(world, replace(SPEC, steps=(100,)))
    assert (result.result, world.weights) == (state.PROMOTED, [100])
    bad = Scripted(failing=0.5)
    assert run(bad, replace(SPEC, steps=(100,)))[0].result == state.BACK


def test_samples_are_kept_in_the_report() -> None:
    result, _ = run(Scripted())
    rules = {(rule["rule"], rule["source"]) for rule in result.history[1]["rules"]}
    assert ("failures", "traffic") in rules
    assert Sample().requests == 0
