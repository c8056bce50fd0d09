"""The whole run: the default, the search, the proof, the gains."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime, timezone
from typing import Any

from triton_repo_builder.base import hardware
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.load.workers import WorkerPool
from triton_repo_builder.measure.bench.measure import machine
from triton_repo_builder.measure.bench.options import Variant
from triton_repo_builder.measure.bench.target import find as find_target
from triton_repo_builder.measure.options import TuneOptions
from triton_repo_builder.measure.tune import factors, fingerprint, service_times
from triton_repo_builder.measure.tune import prove as proof
from triton_repo_builder.measure.tune.capacity import Meter, find, finer_seconds, shortest
from triton_repo_builder.measure.tune.factors import Setting, Subject, Value
from triton_repo_builder.measure.tune.live import FAILURES, Live, told
from triton_repo_builder.measure.tune.report import (
    FAILED,
    MEASURED,
    PRUNED,
    Compared,
    Gain,
    Report,
    Trial,
)
from triton_repo_builder.measure.tune.study import Search, first_guesses
from triton_repo_builder.measure.tune.trials import Trials, value
from triton_repo_builder.repository import Repository
from triton_repo_builder.run.client import Urls

CANDIDATES = 5
"""Settings that the proof begins with, beside the default."""
CLOSE = 0.9
"""All but the best must have this share of its capacity."""
SAME_AGAIN = 40
"""The search ends after this many suggestions in a row that were measured already."""
GAINS = 2
"""Number of settings to measure after the proof, for the gains."""
PROOF = 0.5
"""Largest share of the budget that is kept for the proof."""
LEAST = 4
"""Least budget, in times of the first trial: one other setting, and the proof."""
Progress = Callable[[str, int, int], None]
"""Called with the current step, seconds done and seconds in all."""


class Ended(TrbError):
    """A run that ended with an error; the report has what was measured until then."""

    def __init__(self, error: TrbError, report: Report) -> None:
        super().__init__(error.code, error.message, where=error.where, remedy=error.remedy)
        self.report = report


def tune(
    live: Live,
    options: TuneOptions,
    progress: Progress = lambda text, done, total: None,
    *,
    prove: Callable[[Urls, Repository | None], None] | None = None,
) -> Report:
    """Search on a server that runs. Raises ``TrbError``, ``Ended``
    once something was measured; Ctrl-C ends the search, not the run.

    ``prove`` is called first, with the server as it is, and raises ``TrbError`` if it is not worth tuning.
    """
    _check_budget(options, shortest(options.bench, options.objective), "at least ")
    with live, WorkerPool() as pool:
        if prove:
            prove(live.urls, live.repository)
        meter = Meter(pool=pool, options=options.bench, objective=options.objective)
        return _Run(live, meter, options, progress).run()


class _Run:
    def __init__(self, live: Live, meter: Meter, options: TuneOptions, progress: Progress) -> None:
        self._live, self._meter, self._options, self._progress = live, meter, options, progress
        self._begun = time.monotonic()
        self._started = datetime.now(timezone.utc)
        self._cores = hardware.here().cores
        endpoint = options.bench.endpoint or _only(live)
        self._subject = live.add(endpoint)
        for name in options.variants:
            _same(self._subject, live.add(name), live.urls.http)
        self._space = factors.space(self._subject, self._cores, options.variants)
        self._base = factors.default(self._space)
        self._models = [member.name for each in live.subjects.values() for member in each.members]
        self._files = fingerprint.take(live.repository, self._models)
        self._trials = Trials(
            live=live,
            meter=meter,
            objective=options.objective,
            base=self._base,
            cores=self._cores,
            tell=self._tell,
        )

    # --- the run

    def run(self) -> Report:
        search = Search(self._space, self._about(), self._options.output, self._options.seed)
        for setting, result in search.earlier():
            if not self._trials.known(setting):
                self._trials.done.append(Trial.of_json(result))
        if self._trials.done:
            self._trials.notes.append(f"{len(self._trials.done)} settings were measured by an earlier run")
        for setting in first_guesses(self._space):
            if not self._trials.known(setting):
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
            fingerprint.check(self._live.repository, self._models, self._files)
        except TrbError as error:
            if not self._trials.done:
                raise
            self._trials.notes.append(f"ended with an error: {error.message}")
            raise Ended(error, self._report(compared, chosen, gained, service)) from None
        except KeyboardInterrupt:
            if not self._trials.done:
                raise
            self._trials.notes.append(
                "interrupted: what was measured until then is here, and nothing else is proven"
            )
        return self._report(compared, chosen, gained, service)

    def _search(self, search: Search) -> None:
        repeats = 0
        total = math.prod(len(factor.values) for factor in self._space)
        most = self._options.trials or total
        while repeats < min(SAME_AGAIN, total) and len(self._trials.done) < most:
            if self._trials.done and self._left() < self._reserve() + self._trials.mean():
                break
            fingerprint.check(self._live.repository, self._models, self._files)
            suggestion = search.ask()
            earlier = self._trials.known(suggestion.setting)
            if earlier:
                repeats += 1
                search.tell(suggestion, value(earlier), asdict(earlier))
                continue
            repeats = 0
            try:
                trial = self._trials.measure(suggestion.setting)
            except KeyboardInterrupt:
                search.forget(suggestion)
                raise
            self._trials.done.append(trial)
            search.tell(suggestion, value(trial), asdict(trial))
            if len(self._trials.done) == 1:
                _check_budget(self._options, trial.seconds)
        fingerprint.check(self._live.repository, self._models, self._files)

    # --- what ends it

    def _check_met(self) -> None:
        if any(trial.status == MEASURED for trial in self._trials.done):
            return
        latencies = [trial.latency_ms for trial in self._trials.done if trial.latency_ms is not None]
        objective = self._options.objective
        seen = f"; the best seen is {min(latencies):.1f} ms" if latencies else ""
        failures = [trial for trial in self._trials.done if trial.status == FAILED]
        raise TrbError(
            Code.OBJECTIVE_UNMET,
            f"none of {len(self._trials.done)} settings holds {objective} at any rate{seen}"
            + (f"; {len(failures)} failed, the first: {failures[0].reason}" if failures else ""),
            where=self._subject.endpoint,
            remedy="allow more with --slo, or make the model faster first: trb optimize",
        )

    # --- proof

    def _prove(self) -> tuple[Compared, ...]:
        default = self._trials.known(self._base)
        ranked = sorted(
            (trial for trial in self._trials.done if trial.status == MEASURED), key=lambda t: -t.capacity
        )
        rivals = [trial for trial in ranked if factors.key(trial.setting) != factors.key(self._base)]
        rivals = [trial for trial in rivals if trial.capacity >= CLOSE * ranked[0].capacity] or rivals[:1]
        finer = self._proof_seconds(1, finer=True) <= self._left()
        fitting = (
            count
            for count in range(CANDIDATES, 0, -1)
            if self._proof_seconds(count, finer=finer) <= self._left()
        )
        settings: list[tuple[Setting, float]] = [(self._base, default.capacity if default else 0.0)]
        settings += [(trial.setting, trial.capacity) for trial in rivals[: next(fitting, 1)]]
        for note in ("the proof began anew", "nothing is proven"):
            try:
                return proof.alternate(
                    self._live,
                    self._meter,
                    self._base,
                    settings,
                    self._tell,
                    self._cores,
                    finer=finer,
                )
            except FAILURES as error:
                self._live.revive()
                self._trials.notes.append(f"{note}: {told(error)}")
        return ()

    def _gains(self, chosen: Compared) -> tuple[Gain, ...]:
        capacities = {
            factors.key(trial.setting): (trial.capacity or trial.reachable, trial.status == PRUNED)
            for trial in self._trials.done
            if trial.status in (MEASURED, PRUNED)
        }

        def measure(setting: Setting) -> float | None:
            if self._left() < self._trials.mean():
                return None
            self._tell(f"gain: {factors.describe(setting, self._base)}")
            try:
                self._live.apply(setting, self._base)
                variant = self._live.variant(self._live.endpoint(setting))
                return find(self._meter, variant, clients=factors.clients(setting)).rate or None
            except FAILURES:
                self._live.revive()
                return None

        return proof.gains(chosen, self._base, self._space, capacities, measure)

    def _service(self, chosen: Compared | None) -> Any:
        setting = chosen.setting if chosen else self._base
        self._tell("time of a batch by its size")
        try:
            self._live.apply(setting, self._base)
            subject = self._live.subjects[self._live.endpoint(setting)]
            configs = factors.configs(subject, setting, self._base)
            members = tuple(replace(member, raw=configs[member.name]) for member in subject.members)
            subject = replace(subject, members=members)
            return service_times.measure(
                self._meter,
                self._live.variant(subject.endpoint),
                subject,
                self._cores,
                whole=self._left() >= service_times.SECONDS,
            )
        except FAILURES as error:
            self._trials.notes.append(f"the time of a batch by its size is not known: {told(error)}")
            return None

    # --- small things

    def _about(self) -> dict[str, Any]:
        """Facts that must be equal for an earlier run's trials to count."""
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

    def _left(self) -> float:
        return self._options.budget - (time.monotonic() - self._begun)

    def _reserve(self) -> float:
        """Seconds for the proof, the gains and the times of batches."""
        seconds = self._proof_seconds(CANDIDATES, finer=True) + GAINS * self._trials.mean()
        return min(seconds + service_times.SECONDS, PROOF * self._options.budget)

    def _proof_seconds(self, candidates: int, *, finer: bool) -> float:
        """Seconds of a proof that begins with so many settings beside the default."""
        if finer:
            each = finer_seconds(self._options.bench, self._options.objective) + self._trials.overhead()
        else:
            default = self._trials.known(self._base)
            each = default.seconds if default else self._trials.mean()
        return proof.measurements(candidates) * each

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
            trials=tuple(self._trials.done),
            compared=compared,
            chosen=factors.describe(setting, self._base),
            setting=setting,
            better=chosen is not None,
            gains=gained,
            service=service,
            notes=(*self._trials.notes, *self._trials.disturbed()),
        )


def _check_budget(options: TuneOptions, trial: float, about: str = "") -> None:
    """Raise ``TrbError`` if the budget does not suffice for trials of so many seconds."""
    least = math.ceil(LEAST * trial)
    if options.budget < least:
        raise TrbError(
            Code.USAGE,
            f"{options.budget:g} s is too short: one trial takes {about}{trial:.0f} s here",
            where="--budget",
            remedy=f"give at least {least}s",
        )


def _same(subject: Subject, variant: Subject, where: str) -> None:
    """Raise ``TrbError`` if a variant cannot be asked what the endpoint is asked."""
    if _interface(subject) != _interface(variant):
        raise TrbError(
            Code.USAGE,
            f"{variant.endpoint} has other inputs or outputs than {subject.endpoint}: no variant of it",
            where=where,
            remedy="--variants are endpoints of the same model, built with another precision or padding",
        )


def _interface(subject: Subject) -> object:
    config = subject.member(subject.endpoint).raw
    inputs = sorted((each.get("name"), each.get("data_type")) for each in config.get("input", ()))
    return inputs, sorted(each.get("name") for each in config.get("output", ()))


def _only(live: Live) -> str:
    variant: Variant = live.variant("")
    return find_target(variant).name
