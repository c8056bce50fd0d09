"""The steps of a canary: hold, count, judge, go on or go back.

Everything outside (Traefik, servers, time) is behind ``World``, so that the order of things can be tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client import RequestFailed
from triton_repo_builder.ship.canary import judge, state
from triton_repo_builder.ship.canary.again import APART, Again
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
ALMOST_NONE = 20
"""Percent of a first step in which the stable server has almost all the load: its times may be compared with
the canary's under all of it."""
BATCH = 50
"""Golden cases between two readings at most."""
SETTLED = 3.0
"""Seconds after which a server's metrics have everything: models deliver their counts once a second."""
UNREACHED = 10
"""Requests from which on a stable server that Traefik does not reach is believed."""


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

    def unreached(self) -> str:
        """The stable servers, if none of them passes Traefik's own health check; else empty."""

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
            "note": self.note,
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
                    "quantile": verdict.quantile,
                    "detail": verdict.detail,
                }
                for verdict in self.verdicts
            ],
        }


Tell = Callable[[Look], None]


@dataclass
class _Window:
    """The readings of a step between which only clients' texts are counted."""

    since: Reading | None = None
    until: Reading | None = None
    closed: bool = False

    @property
    def full(self) -> bool:
        """Whether it has an end as well."""
        return self.until is not self.since

    def see(self, reading: Reading) -> None:
        """The latest reading. The first one begins the window."""
        if not self.closed:
            self.since, self.until = self.since or reading, reading

    def close(self) -> None:
        """Golden cases follow, so that the window ends with the latest reading."""
        self.closed = True


class Engine:
    """Runs one canary to its end."""

    def __init__(
        self, spec: CanarySpec, rules: Sequence[Rule], world: World, tell: Tell, *, cached: bool = False
    ) -> None:
        self._spec, self._rules, self._world, self._tell = spec, rules, world, tell
        self._cached = cached
        self._first_bad: float | None = None
        self._began = 0.0
        self._again = Again(judge.quantiles_of(cached))
        self._golden_at = -math.inf
        """When the latest golden case was answered."""

    def run(self, current: State) -> State:
        """Go on from a state until the canary is promoted, taken back or aborted. Raises ``TrbError``."""
        steps = self._spec.steps
        if current.step < 0:
            self._begin()
            look = self._before_traffic()
            if broken := self._broken(look):
                return self._back(current, look, state.BACK, broken)
            current = replace(current, history=(*current.history, look.to_json()))
        else:
            self._golden_at = self._world.now()  # the process before may have sent some
        for number in range(max(0, current.step), len(steps)):
            current = self._step(current, number)
            if current.result != state.RUNNING:
                return current
        return self._promoted(current)

    def _begin(self) -> None:
        self._began, self._first_bad = self._world.now(), None
        self._again = Again(judge.quantiles_of(self._cached))

    def _before_traffic(self) -> Look:
        """Golden cases alone: what they show costs no user anything."""
        warm = self._compare()  # a first request may compile or allocate
        golden = self._compare()
        golden = replace(golden, answers=warm.answers.plus(golden.answers))
        nothing = Traffic(stable=Side(), canary=Side())
        verdicts = self._verdicts(nothing, golden, whole=True, final=True)
        if self._again.pending:
            self._world.wait(APART)
            golden = golden.plus(self._compare())
            verdicts = self._verdicts(nothing, golden, whole=True, final=True)
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
        current = replace(current, step=number, weight=percent, step_began=world.clock(), latest=None)
        world.save(current)
        world.split(percent)
        self._begin()
        before, golden, whole = self._read_patiently(), GoldenResults(), False
        seen, window = self._began, _Window()
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
                world.save(replace(current, latest=look.to_json()))
                if world.now() - seen < BLIND or not world.ready(STABLE):
                    continue
                silent = f"no metrics for {BLIND:g} s: {error.message}"
                dead = f"the canary does not answer for {BLIND:g} s"
                return self._back(current, look, state.BACK, silent if world.ready(CANARY) else dead)
            alive = world.ready(CANARY)
            if alive:
                seen, note = world.now(), ""
            else:
                note = "the canary is not ready"
            if world.now() - self._golden_at >= SETTLED:
                window.see(after)
            traffic = self._live(world.traffic(before, after, golden), window, golden)
            unreached = _unreached(traffic.stable, world.unreached()) if percent < ALL else ""
            note = note or unreached
            if percent == ALL:
                traffic = replace(traffic, stable=self._baseline(current))
            late = seconds >= spec.timeout
            enough = traffic.canary.sample.requests + golden.requests >= spec.requests
            held = seconds >= spec.hold and (window.full or late)
            if judge.GOLDEN in self._again.pending and alive:
                window.close()
                golden = golden.plus(world.ask(BATCH, TICK))
                self._golden_at = world.now()
            if held and not enough and not late and not note:
                missing = spec.requests - traffic.canary.sample.requests - golden.requests
                window.close()
                golden = golden.plus(world.ask(min(BATCH, missing), TICK))
                self._golden_at = world.now()
                note = "too little traffic: golden cases make up for it"
                enough = traffic.canary.sample.requests + golden.requests >= spec.requests
            final = late or (enough and held)
            if final and not whole and alive:
                window.close()
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
            world.save(replace(current, latest=look.to_json()))
            broken = self._broken(look)
            if not broken and world.now() - seen >= BLIND:
                broken = f"the canary is not ready for {BLIND:g} s"
            if not broken and late and self._again.pending:
                broken = f"slower than the stable version at the end of {spec.timeout:g} s"
            if not broken and late and not alive:
                broken = f"the canary is not ready after {spec.timeout:g} s"
            if not broken and late and not enough and not unreached:
                broken = self._too_few(look)
            # Nothing is compared with a server that Traefik does not reach, and no client would get there.
            usable = world.ready(STABLE) and not unreached
            if broken and usable:
                return self._back(current, look, state.BACK, broken)
            # A canary that is down at this moment, or was not compared as a whole, has not passed.
            passed = not broken and enough and held and alive and whole and not self._again.pending
            if passed and (usable or percent == ALL):
                break
            if late:
                raise _stable_gone(broken, unreached)
            if not usable and not unreached:
                self._tell(replace(look, note=f"the stable server is not ready, so nothing moves; {broken}"))
        baseline = current.baseline or (traffic.stable if percent < ALL else None)
        current = replace(current, baseline=baseline, history=(*current.history, look.to_json()))
        world.save(current)
        return current

    def _baseline(self, current: State) -> Side:
        """The stable side of the first step, without its times if it had much less load than the canary has
        now."""
        baseline = current.baseline or Side()
        if self._spec.steps[0] <= ALMOST_NONE:
            return baseline
        return replace(baseline, sample=replace(baseline.sample, buckets={}))

    def _compare(self) -> GoldenResults:
        results = self._world.compare()
        self._golden_at = self._world.now()
        return results

    def _live(self, traffic: Traffic, window: _Window, golden: GoldenResults) -> Traffic:
        """The traffic with the distributions of clients' texts only.

        The servers count golden cases among the texts: few beside the stable server's, most of the
        canary's if it has little traffic. So what is counted while they are sent is left out, for both sides.
        """
        if not window.since or not window.until:
            return Traffic(
                stable=Side(sample=traffic.stable.sample),
                canary=Side(sample=traffic.canary.sample),
                shadow=traffic.shadow,
            )
        live = self._world.traffic(window.since, window.until, golden)
        return replace(
            traffic,
            stable=replace(live.stable, sample=traffic.stable.sample),
            canary=replace(live.canary, sample=traffic.canary.sample),
        )

    def _compare_whole(self, golden: GoldenResults) -> GoldenResults:
        """One comparison of all golden cases ends each step: answers may depend on the load."""
        results = self._compare()
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
        live = (traffic.stable, traffic.canary)
        direct = (Side(sample=golden.stable), Side(sample=golden.canary))
        verdicts = judge.all_rules(
            self._rules,
            traffic=live,
            golden=direct,
            compared=golden.answers,
            shadow=traffic.shadow,
            final=final,
            whole=whole,
            cached=self._cached,
        )
        return self._again.confirmed(verdicts, {judge.TRAFFIC: live, judge.GOLDEN: direct}, self._world.now())

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


def _unreached(stable: Side, down: str) -> str:
    """Words for a stable side that Traefik holds for down, or most of whose requests it answers itself.

    Empty otherwise. While its health check fails, the canary gets all requests: there is nothing to compare
    with.
    """
    sample = stable.sample
    if down:
        return f"Traefik reaches no stable server: {down} fails its health check, so nothing moves"
    if sample.requests < UNREACHED or 2 * sample.unserved <= sample.requests:
        return ""
    return (
        f"Traefik reaches no stable server: {sample.unserved:,} of {sample.requests:,} requests got 502, 503 "
        "or 504, so nothing moves"
    )


def _stable_gone(broken: str, unreached: str = "") -> TrbError:
    why = unreached or "the stable server is not ready, so the weights stay as they are"
    return TrbError(
        Code.UNREACHABLE,
        why + (f"; {broken}" if broken else ""),
        remedy="bring it back, then run the same command again: it goes on with this step",
    )
