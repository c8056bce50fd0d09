"""The order of steps, on a world that is scripted: no server, no time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client import NoAnswer
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
    _split_at: float = 0.0

    def now(self) -> float:
        return self.time

    def clock(self) -> float:
        return 1_000_000 + self.time

    def wait(self, seconds: float) -> None:
        self.time += seconds

    def split(self, weight: int) -> None:
        if self.refuses:
            raise TrbError(Code.TIMED_OUT, "Traefik did not follow")
        self.time += 0.5
        self.weight, self._split_at = weight, self.time
        self.weights.append(weight)

    def read(self) -> Reading:
        if self.blind(self.time):
            raise NoAnswer("no answer: gone")
        return Reading()

    def traffic(self, before: Reading, after: Reading, own: GoldenResults) -> Traffic:
        seen = self.rate * (self.time - self._split_at)
        share = self.weight / 100
        return Traffic(
            stable=self._side(round(seen * (1 - share)), 0.0, 1.0),
            canary=self._side(round(seen * share), self.failing, self.slower),
        )

    def _side(self, requests: int, failing: float, slower: float) -> Side:
        failed = round(requests * failing)
        return Side(sample=sample.of([0.02 * slower] * (requests - failed), failed))

    def ready(self, side: str) -> bool:
        return not self.down(side, self.time)

    def compare(self) -> GoldenResults:
        return self._golden(CASES if self.golden else 0)

    def ask(self, most: int, seconds: float) -> GoldenResults:
        self.time += seconds
        number = most if self.golden else 0
        self.asked_for += number
        return self._golden(number)

    def _golden(self, number: int) -> GoldenResults:
        return GoldenResults(
            stable=sample.of([0.02] * number, 0),
            canary=sample.of([0.02 * self.slower] * number, 0),
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
