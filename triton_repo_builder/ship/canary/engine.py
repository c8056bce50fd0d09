"""The steps of a canary: hold, count, judge, go on or go back.

Everything outside (Traefik, servers, time) is behind ``World``, so that the order of things can be tested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client import RequestFailed
from triton_repo_builder.ship.canary import judge, state
from triton_repo_builder.ship.canary.golden import GoldenResults
from triton_repo_builder.ship.canary.judge import Verdict
from triton_repo_builder.ship.canary.sample import Reading, Side, Traffic
from triton_repo_builder.ship.canary.state import State
from triton_repo_builder.ship.targets.canary_rules import FAILURES, P99, Rule
from triton_repo_builder.ship.targets.routes import CANARY, STABLE
from triton_repo_builder.ship.targets.spec import ALL
from triton_repo_builder.ship.targets.spec import Canary as CanarySpec

TICK = 1.0
"""Seconds between two readings."""
BLIND = 30.0
"""Seconds without metrics, or with a canary that is not ready, after which it is taken back."""
BATCH = 50
"""Golden cases between two readings at most."""


class World(Protocol):
    """Surroundings of a canary: what it sees and does."""

    def now(self) -> float:
        """Seconds of a clock that only goes forward."""

    def clock(self) -> float:
        """Unix time."""

    def wait(self, seconds: float) -> None:
        """Let time pass."""

    def split(self, weight: int) -> None:
        """Send so many percent to the canary; returns when Traefik does. Raises ``TrbError``."""

    def read(self) -> Reading:
        """All metrics. Raises ``RequestFailed``."""

    def traffic(self, before: Reading, after: Reading, golden: GoldenResults) -> Traffic:
        """The traffic between two readings; ``golden`` was sent by trb itself meanwhile."""

    def ready(self, side: str) -> bool:
        """Whether a side's server may get traffic."""

    def compare(self) -> GoldenResults:
        """Every golden case once, to both servers."""

    def ask(self, most: int, seconds: float) -> GoldenResults:
        """Some golden cases, to both servers."""

    def save(self, state: State) -> None:
        """Keep the state for the next process. Raises ``TrbError``."""

    def asked(self) -> str:
        """A request of an operator: ``state.PROMOTE``, ``state.ABORT`` or nothing."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at a step, for a person."""

    percent: int
    step: int
    steps: int
    seconds: float
    traffic: Traffic = field(default_factory=lambda: Traffic(stable=Side(), canary=Side()))
    golden: GoldenResults = field(default_factory=GoldenResults)
    verdicts: tuple[Verdict, ...] = ()
    note: str = ""

    @property
    def requests(self) -> int:
        """Requests that the canary answered in this step."""
        return self.traffic.canary.sample.requests + self.golden.requests

    def to_json(self) -> dict[str, Any]:
        """Plain values for the state and ``--json``."""
        sides = {"stable": self.traffic.stable.sample, "canary": self.traffic.canary.sample}
        return {
            "percent": self.percent,
            "seconds": round(self.seconds, 3),
            "golden_requests": self.golden.requests,
            **{
                name: {
                    "requests": sample.requests,
                    "failures": sample.failures,
                    "p99_ms": None if sample.p99 is None else round(1000 * sample.p99, 3),
                }
                for name, sample in sides.items()
            },
            "rules": [
                {
                    "rule": verdict.rule.name,
                    "source": verdict.source,
                    "state": verdict.state,
                    "stable": verdict.stable,
                    "canary": verdict.canary,
                    "value": verdict.value,
                    "limit": verdict.rule.limit,
                    "requests": verdict.requests,
                    "detail": verdict.detail,
                }
                for verdict in self.verdicts
            ],
        }


Tell = Callable[[Look], None]


class Engine:
    """Runs one canary to its end."""

    def __init__(self, spec: CanarySpec, rules: Sequence[Rule], world: World, tell: Tell) -> None:
        self._spec, self._rules, self._world, self._tell = spec, rules, world, tell
        self._first_bad: float | None = None
        self._began = 0.0

    def run(self, current: State) -> State:
        """Go on from a state until the canary is promoted, taken back or aborted. Raises ``TrbError``."""
        steps = self._spec.steps
        if current.step < 0:
            self._begin()
            look = self._before_traffic()
            if broken := self._broken(look):
                return self._back(current, look, state.BACK, broken)
            current = replace(current, history=(*current.history, look.to_json()))
        for number in range(max(0, current.step), len(steps)):
            current = self._step(current, number)
            if current.result != state.RUNNING:
                return current
        return self._promoted(current)

    def _begin(self) -> None:
        self._began, self._first_bad = self._world.now(), None

    def _before_traffic(self) -> Look:
        """Golden cases alone: what they show costs no user anything."""
        warm = self._world.compare()  # a first request may compile or allocate
        golden = self._world.compare()
        golden = replace(golden, answers=warm.answers.plus(golden.answers))
        verdicts = self._verdicts(Traffic(stable=Side(), canary=Side()), golden, whole=True, final=True)
        look = Look(
            percent=0,
            step=0,
            steps=len(self._spec.steps),
            seconds=self._world.now() - self._began,
            golden=golden,
            verdicts=verdicts,
        )
        self._tell(look)
        return look

    def _step(self, current: State, number: int) -> State:
        """One step: the state after it, still running if the next one follows."""
        world, spec, percent = self._world, self._spec, self._spec.steps[number]
        current = replace(current, step=number, weight=percent, step_began=world.clock())
        world.save(current)
        world.split(percent)
        self._begin()
        before, golden, whole = self._read_patiently(), GoldenResults(), False
        seen = self._began
        look = Look(percent=percent, step=number, steps=len(spec.steps), seconds=0.0)
        while True:
            world.wait(TICK)
            if command := world.asked():
                return self._commanded(current, look, command)
            seconds = world.now() - self._began
            try:
                after = world.read()
            except RequestFailed as error:
                look = replace(look, seconds=seconds, note=f"metrics do not answer: {error.message}")
                self._tell(look)
                if world.now() - seen < BLIND or not world.ready(STABLE):
                    continue
                silent = f"no metrics for {BLIND:g} s: {error.message}"
                dead = f"the canary does not answer for {BLIND:g} s"
                return self._back(current, look, state.BACK, silent if world.ready(CANARY) else dead)
            if world.ready(CANARY):
                seen, note = world.now(), ""
            else:
                note = "the canary is not ready"
            traffic = world.traffic(before, after, golden)
            if percent == ALL:
                traffic = replace(traffic, stable=current.baseline or Side())
            late = seconds >= spec.timeout
            enough = traffic.canary.sample.requests + golden.requests >= spec.requests
            if seconds >= spec.hold and not enough and not late and not note:
                missing = spec.requests - traffic.canary.sample.requests - golden.requests
                golden = golden.plus(world.ask(min(BATCH, missing), TICK))
                note = "too little traffic: golden cases make up for it"
                enough = traffic.canary.sample.requests + golden.requests >= spec.requests
            final = late or (enough and seconds >= spec.hold)
            if final and not whole and world.ready(CANARY):
                golden, whole = self._compare_whole(golden), True
            look = replace(
                look,
                seconds=world.now() - self._began,
                traffic=traffic,
                golden=golden,
                verdicts=self._verdicts(traffic, golden, final=final, whole=whole),
                note=note,
            )
            self._notice(look)
            self._tell(look)
            broken = self._broken(look)
            if not broken and world.now() - seen >= BLIND:
                broken = f"the canary is not ready for {BLIND:g} s"
            if not broken and late and not enough:
                broken = self._too_few(look)
            usable = world.ready(STABLE)
            if broken and usable:
                return self._back(current, look, state.BACK, broken)
            if not broken and enough and seconds >= spec.hold and (usable or percent == ALL):
                break
            if late:
                raise _stable_gone(broken)
            if not usable:
                self._tell(replace(look, note=f"the stable server is not ready, so nothing moves; {broken}"))
        baseline = current.baseline or (traffic.stable if percent < ALL else None)
        current = replace(current, baseline=baseline, history=(*current.history, look.to_json()))
        world.save(current)
        return current

    def _compare_whole(self, golden: GoldenResults) -> GoldenResults:
        """One comparison of all golden cases ends each step: answers may depend on the load."""
        results = self._world.compare()
        # Their times are those of single requests beside the traffic, and count among the golden ones only if
        # such were needed anyway; their answers and failures count in any case.
        if golden.requests:
            return golden.plus(results)
        return replace(golden, answers=results.answers)

    def _read_patiently(self) -> Reading:
        """The reading that a step begins with."""
        until = self._world.now() + BLIND
        while True:
            try:
                return self._world.read()
            except RequestFailed:
                if self._world.now() > until:
                    raise
                self._world.wait(TICK)

    def _verdicts(
        self, traffic: Traffic, golden: GoldenResults, *, final: bool, whole: bool
    ) -> tuple[Verdict, ...]:
        return judge.all_rules(
            self._rules,
            traffic=(traffic.stable, traffic.canary),
            golden=(Side(sample=golden.stable), Side(sample=golden.canary)),
            compared=golden.answers,
            shadow=traffic.shadow,
            final=final,
            whole=whole,
        )

    def _broken(self, look: Look) -> str:
        """Which rule is broken, with both numbers; empty if none is."""
        broken = next((verdict for verdict in look.verdicts if verdict.broken), None)
        if broken is None:
            return ""
        where = "" if broken.source == judge.TRAFFIC else f" ({broken.source})"
        return f"rule {broken.rule.name}{where}: {judge.words(broken)}"

    def _notice(self, look: Look) -> None:
        """Remember when the first bad request of this step was seen."""
        if self._first_bad is not None:
            return
        for verdict in look.verdicts:
            bad = verdict.rule.name == FAILURES and verdict.canary
            slow = (
                verdict.rule.name == P99 and verdict.value is not None and verdict.value > verdict.rule.limit
            )
            if bad or slow or verdict.broken:
                self._first_bad = self._world.now()
                return

    def _too_few(self, look: Look) -> str:
        return (
            f"only {look.requests:,} of {self._spec.requests:,} requests within {self._spec.timeout:g} s, "
            "golden cases included"
        )

    def _commanded(self, current: State, look: Look, command: str) -> State:
        if command == state.ABORT:
            return self._back(current, look, state.ABORTED, "trb canary abort")
        current = replace(current, history=(*current.history, look.to_json()), reason="trb canary promote")
        self._world.split(ALL)
        return self._promoted(current)

    def _back(self, current: State, look: Look, result: str, reason: str) -> State:
        """All traffic to the stable server, and how long that took."""
        world = self._world
        failed: TrbError | None = None
        try:
            world.split(0)
        except TrbError as error:
            failed = error
        now = world.now()
        first = None if self._first_bad is None else now - self._first_bad
        current = replace(
            current,
            weight=0,
            result=result,
            reason=reason,
            back_s=round(now - self._began, 3),
            first_bad_s=None if first is None else round(first, 3),
            history=(*current.history, look.to_json()),
        )
        if failed is not None:
            current = replace(current, result=state.RUNNING, weight=look.percent)
            world.save(current)
            raise TrbError(
                failed.code, f"{reason}; and {failed.message}", where=failed.where, remedy=failed.remedy
            )
        world.save(current)
        return current

    def _promoted(self, current: State) -> State:
        current = replace(current, weight=ALL, result=state.PROMOTED)
        self._world.save(current)
        return current


def _stable_gone(broken: str) -> TrbError:
    return TrbError(
        Code.UNREACHABLE,
        "the stable server is not ready, so the weights stay as they are" + (f"; {broken}" if broken else ""),
        remedy="bring it back, then run the same command again: it goes on with this step",
    )
