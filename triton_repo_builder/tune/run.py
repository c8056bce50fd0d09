"""The whole run: the default, the search, the proof, the gains."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from triton_repo_builder import hardware
from triton_repo_builder.bench.load.workers import WorkerPool
from triton_repo_builder.bench.measure import machine
from triton_repo_builder.bench.objective import Objective
from triton_repo_builder.bench.options import Options as BenchOptions
from triton_repo_builder.bench.options import Variant
from triton_repo_builder.bench.report import table
from triton_repo_builder.bench.target import find as find_target
from triton_repo_builder.client import RequestFailed, Urls
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.repository import Repository
from triton_repo_builder.tune import bottleneck, factors, fingerprint, service_times
from triton_repo_builder.tune import prove as proof
from triton_repo_builder.tune.capacity import Found, Meter, confirm, find
from triton_repo_builder.tune.factors import Setting, Value
from triton_repo_builder.tune.live import Live, TrialFailed
from triton_repo_builder.tune.report import (
    FAILED,
    MEASURED,
    PRUNED,
    UNMET,
    Compared,
    Gain,
    Report,
    Trial,
)
from triton_repo_builder.tune.study import Asked, Search, first_guesses

FINALISTS = 2
CLOSE = 0.9
"""A second finalist must have this share of the best capacity."""
SAME_AGAIN = 40
"""Suggestions in a row that were measured already, after which the search has seen what it wants to see."""
MARGIN = 0.97
"""What reaches less than this share of the best is pruned."""
GAINS = 2
"""Settings for whose measurement there should be time after the proof."""
PROOF = 0.4
"""Most of the budget that is kept for the proof."""
LEAST = 4
"""Times of the first trial that a budget must have: one other setting, and the proof."""
Progress = Callable[[str, int, int], None]
"""What is going on, seconds done, seconds in all."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to search for, and how long."""

    objective: Objective
    bench: BenchOptions
    """The load: protocol, corpus, window."""
    rps: float | None = None
    budget: float = 600.0
    trials: int | None = None
    """Settings to measure at most, those of an earlier run included."""
    variants: tuple[str, ...] = ()
    seed: int = 1
    output: Path | None = None
    """Folder of the search's log, with which the next run goes on."""
    command: str = ""


def tune(
    live: Live,
    options: Options,
    progress: Progress = lambda text, done, total: None,
    *,
    prove: Callable[[Urls, Repository | None], None] | None = None,
) -> Report:
    """Search on a server that runs. Raises ``TrbError``; Ctrl-C ends the search, not the run.

    ``prove`` is called first, with the server as it is, and raises ``TrbError`` if it is not worth tuning.
    """
    with live, WorkerPool() as pool:
        if prove:
            prove(live.urls, live.repository)
        meter = Meter(pool=pool, options=options.bench, objective=options.objective)
        return _Run(live, meter, options, progress).run()


class _Run:
    def __init__(self, live: Live, meter: Meter, options: Options, progress: Progress) -> None:
        self._live, self._meter, self._options, self._progress = live, meter, options, progress
        self._begun = time.monotonic()
        self._started = datetime.now(timezone.utc)
        self._cores = hardware.here().cores
        endpoint = options.bench.endpoint or _only(live)
        self._subject = live.add(endpoint)
        for name in options.variants:
            live.add(name)
        self._space = factors.space(self._subject, self._cores, options.variants)
        self._base = factors.default(self._space)
        self._models = [member.name for each in live.subjects.values() for member in each.members]
        self._files = fingerprint.take(live.repository, self._models)
        self._trials: list[Trial] = []
        self._notes: list[str] = []
        self._others: list[float] = []

    # --- the run

    def run(self) -> Report:
        search = Search(self._space, self._about(), self._options.output, self._options.seed)
        for setting, result in search.earlier():
            if factors.key(setting) not in {factors.key(trial.setting) for trial in self._trials}:
                self._trials.append(Trial.of_json(result))
        if self._trials:
            self._notes.append(f"{len(self._trials)} settings were measured by an earlier run")
        for setting in first_guesses(self._space):
            search.suggest(setting)
        compared: tuple[Compared, ...] = ()
        gained: tuple[Gain, ...] = ()
        chosen, service = None, None
        try:
            self._search(search)
            self._check_met()
            compared = self._prove()
            chosen = proof.winner(compared) if compared else None
            if chosen:
                gained = self._gains(chosen)
            service = self._service(chosen)
        except KeyboardInterrupt:
            if not self._trials:
                raise
            self._notes.append(
                "interrupted: what was measured until then is here, and nothing else is proven"
            )
        return self._report(compared, chosen, gained, service)

    def _search(self, search: Search) -> None:
        again = 0
        total = math.prod(len(factor.values) for factor in self._space)
        most = self._options.trials or total
        while again < min(SAME_AGAIN, total) and len(self._trials) < most:
            if self._trials and self._left() < self._reserve() + self._mean():
                break
            fingerprint.check(self._live.repository, self._models, self._files)
            asked = search.ask()
            known = self._known(asked.setting)
            if known:
                again += 1
                search.tell(asked, _value(known), asdict(known))
                continue
            again = 0
            try:
                trial = self._trial(asked)
            except KeyboardInterrupt:
                search.forget(asked)
                raise
            self._trials.append(trial)
            search.tell(asked, _value(trial), asdict(trial))
            if len(self._trials) == 1:
                self._check_budget(trial)
        fingerprint.check(self._live.repository, self._models, self._files)

    def _trial(self, asked: Asked) -> Trial:
        begun, setting = time.monotonic(), asked.setting
        self._meter.seconds = 0.0
        name = factors.describe(setting, self._base)
        self._tell(f"trial {len(self._trials) + 1}: {name}")
        try:
            self._live.apply(setting, self._base)
            variant = self._live.variant(self._live.endpoint(setting))
            found = find(self._meter, variant, self._ceiling, clients=factors.clients(setting))
            best = self._best()
            if found.rate > best:
                found = confirm(self._meter, variant, found)
        except (TrialFailed, RequestFailed, TrbError) as error:
            return self._failed(asked, name, begun, error)
        if not self._live.http.answers_live():
            return self._failed(asked, name, begun, TrialFailed("the server ended during the trial"))
        status = PRUNED if found.pruned else MEASURED if found.rate else UNMET
        return self._made(asked, name, begun, found, status)

    def _made(self, asked: Asked, name: str, begun: float, found: Found, status: str) -> Trial:
        latency, main = found.latency(self._options.objective), found.level and found.level.main_model
        if found.level:
            self._others.append(table.others(found.level, self._cores))
        seconds = time.monotonic() - begun
        return Trial(
            number=len(self._trials) + 1,
            name=name,
            setting=dict(asked.setting),
            status=status,
            capacity=found.rate,
            latency_ms=latency if math.isfinite(latency) else None,
            saturation=found.saturation,
            reachable=found.reachable,
            reason=found.reason,
            bottleneck=bottleneck.name(found.level, self._cores),
            rows_per_execution=main.rows_per_execution if main else None,
            overhead=max(0.0, seconds - self._meter.seconds),
            seconds=seconds,
        )

    def _failed(self, asked: Asked, name: str, begun: float, error: Exception) -> Trial:
        """The trial counts as failed; the server is started again if it ended."""
        if isinstance(error, TrbError) and error.code in (Code.NOT_EXPLICIT, Code.USAGE):
            raise error
        died = not self._live.http.answers_live()
        self._live.revive()
        if died:
            number = len(self._trials) + 1
            self._notes.append(f"the server ended in trial {number} ({name}), and was started again")
        text = error.message if isinstance(error, TrbError) else str(error)
        found = Found(rate=0, level=None, saturation=0, reason=text)
        return self._made(asked, name, begun, found, FAILED)

    # --- what ends it

    def _check_budget(self, default: Trial) -> None:
        least = LEAST * default.seconds
        if self._options.budget < least:
            raise TrbError(
                Code.USAGE,
                f"{self._options.budget:g} s is too short: one trial takes {default.seconds:.0f} s here",
                where="--budget",
                remedy=f"give at least {math.ceil(least)}s",
            )

    def _check_met(self) -> None:
        if any(trial.status == MEASURED for trial in self._trials):
            return
        latencies = [trial.latency_ms for trial in self._trials if trial.latency_ms is not None]
        objective = self._options.objective
        seen = f"; the best seen is {min(latencies):.1f} ms" if latencies else ""
        failures = [trial for trial in self._trials if trial.status == FAILED]
        raise TrbError(
            Code.OBJECTIVE_UNMET,
            f"none of {len(self._trials)} settings holds {objective} at any rate{seen}"
            + (f"; {len(failures)} failed, the first: {failures[0].reason}" if failures else ""),
            where=self._subject.endpoint,
            remedy="allow more with --slo, or make the model faster first: trb optimize",
        )

    def _ceiling(self, most: float) -> str:
        best = self._best()
        return f"reaches at most {most:.1f}/s, the best so far {best:.1f}/s" if most < MARGIN * best else ""

    # --- proof

    def _prove(self) -> tuple[Compared, ...]:
        default = self._known(self._base)
        ranked = sorted(
            (trial for trial in self._trials if trial.status == MEASURED), key=lambda t: -t.capacity
        )
        rivals = [trial for trial in ranked if factors.key(trial.setting) != factors.key(self._base)]
        if not rivals or (default and default.capacity >= rivals[0].capacity):
            rivals = rivals[:1]
        finalists = [t for t in rivals[:FINALISTS] if t.capacity >= CLOSE * rivals[0].capacity]
        settings: list[tuple[Setting, float]] = [(self._base, default.capacity if default else 0.0)]
        settings += [(trial.setting, trial.capacity) for trial in finalists]
        try:
            return proof.alternate(
                self._live,
                self._meter,
                self._base,
                settings,
                lambda text, done, total: self._tell(text),
                self._cores,
            )
        except TrialFailed as error:
            self._live.revive()
            self._notes.append(f"nothing is proven: {error}")
            return ()

    def _gains(self, chosen: Compared) -> tuple[Gain, ...]:
        known = {
            factors.key(trial.setting): (trial.capacity or trial.reachable, trial.status == PRUNED)
            for trial in self._trials
            if trial.status in (MEASURED, PRUNED)
        }

        def measure(setting: Setting) -> float | None:
            if self._left() < self._mean():
                return None
            self._tell(f"gain: {factors.describe(setting, self._base)}")
            with suppress(TrialFailed):
                self._live.apply(setting, self._base)
                variant = self._live.variant(self._live.endpoint(setting))
                return find(self._meter, variant, clients=factors.clients(setting)).rate or None
            return None

        return proof.gains(chosen, self._base, self._space, known, measure)

    def _service(self, chosen: Compared | None) -> Any:
        setting = chosen.setting if chosen else self._base
        self._tell("time of a batch by its size")
        with suppress(TrialFailed, RequestFailed):
            self._live.apply(setting, self._base)
            subject = self._live.subjects[self._live.endpoint(setting)]
            configs = factors.configs(subject, setting, self._base)
            members = tuple(replace(member, raw=configs[member.name]) for member in subject.members)
            subject = replace(subject, members=members)
            return service_times.measure(
                self._meter, self._live.variant(subject.endpoint), subject, self._cores
            )
        return None

    # --- small things

    def _about(self) -> dict[str, Any]:
        """What must be equal for an earlier run's trials to count."""
        bench = self._options.bench
        return {
            "endpoint": self._subject.endpoint,
            "objective": asdict(self._options.objective),
            "space": {factor.name: list(factor.values) for factor in self._space},
            "configuration": {member.name: member.raw for member in self._subject.members},
            "files": {path: list(state) for path, state in self._files.items()},
            "load": {
                "protocols": list(bench.protocols),
                "corpus": str(bench.corpus or ""),
                "window": bench.window,
            },
            "machine": machine.facts(),
        }

    def _known(self, setting: Setting) -> Trial | None:
        key = factors.key(setting)
        return next((trial for trial in self._trials if factors.key(trial.setting) == key), None)

    def _best(self) -> float:
        return max((trial.capacity for trial in self._trials), default=0.0)

    def _left(self) -> float:
        return self._options.budget - (time.monotonic() - self._begun)

    def _mean(self) -> float:
        """Seconds that a trial takes."""
        return sum(trial.seconds for trial in self._trials) / max(1, len(self._trials))

    def _reserve(self) -> float:
        """Seconds for the proof, of which a measurement takes less than a trial: the rate is known."""
        return min((proof.ROUNDS * FINALISTS + GAINS) * self._mean(), PROOF * self._options.budget)

    def _disturbed(self) -> list[str]:
        share = statistics.median(self._others) if self._others else 0.0
        if share <= table.NOISE:
            return []
        return [
            f"other programs used {share:.0%} of this machine's CPU in the median trial: run it again alone"
        ]

    def _tell(self, text: str) -> None:
        done = min(time.monotonic() - self._begun, self._options.budget)
        self._progress(text, round(done), round(self._options.budget))

    def _report(
        self,
        compared: tuple[Compared, ...],
        chosen: Compared | None,
        gained: tuple[Gain, ...],
        service: Any,
    ) -> Report:
        options = self._options
        setting: dict[str, Value] = dict(chosen.setting if chosen else self._base)
        return Report(
            command=options.command,
            started=self._started.isoformat(timespec="seconds"),
            seconds=time.monotonic() - self._begun,
            endpoint=self._subject.endpoint,
            objective=options.objective,
            rps=options.rps,
            budget=options.budget,
            machine=machine.facts(),
            versions=machine.versions(),
            space={factor.name: factor.values for factor in self._space},
            trials=tuple(self._trials),
            compared=compared,
            chosen=factors.describe(setting, self._base),
            setting=setting,
            better=chosen is not None,
            gains=gained,
            service=service,
            notes=(*self._notes, *self._disturbed()),
        )


def _value(trial: Trial) -> float:
    """For the sampler: what is pruned is as good as it can be at most, what fails as bad as possible."""
    return trial.reachable if trial.status == PRUNED else trial.capacity


def _only(live: Live) -> str:
    variant: Variant = live.variant("")
    return find_target(variant).name
