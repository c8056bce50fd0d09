"""The trials of a search: each loads a setting, measures its capacity and names the bottleneck."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.report import table
from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.measure.tune import bottleneck, factors
from triton_repo_builder.measure.tune.capacity import Meter, SettingCapacity, confirm, find
from triton_repo_builder.measure.tune.factors import Setting
from triton_repo_builder.measure.tune.live import FAILURES, Live, TrialFailed, told
from triton_repo_builder.measure.tune.report import FAILED, MEASURED, PRUNED, UNMET, Trial

MARGIN = 0.95
"""Trials that reach less than this share of the best are pruned: a best may be luck, by about so much."""


@dataclass(kw_only=True)
class Trials:
    """Trials measured so far. Not frozen: the list grows."""

    live: Live
    meter: Meter
    objective: Objective
    base: Setting
    """The default: names of trials say what differs from it."""
    cores: int
    tell: Callable[[str], None]
    done: list[Trial] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _others: list[float] = field(default_factory=list)

    def measure(self, setting: Setting) -> Trial:
        """Measure one setting; a new best is confirmed. Failures of the server fail the trial."""
        begun = time.monotonic()
        self.meter.seconds = 0.0
        name = factors.describe(setting, self.base)
        self.tell(f"trial {len(self.done) + 1}: {name}")
        try:
            self.live.apply(setting, self.base)
            variant = self.live.variant(self.live.endpoint(setting))
            capacity = find(self.meter, variant, self._ceiling, clients=factors.clients(setting))
            best = self.best()
            if capacity.rate > best:
                capacity = confirm(self.meter, variant, capacity)
        except FAILURES as error:
            return self._failed(setting, name, begun, error)
        if not self.live.http.answers_live():
            return self._failed(setting, name, begun, TrialFailed("the server ended during the trial"))
        status = PRUNED if capacity.pruned else MEASURED if capacity.rate else UNMET
        return self._trial(setting, name, begun, capacity, status)

    def _trial(
        self, setting: Setting, name: str, begun: float, capacity: SettingCapacity, status: str
    ) -> Trial:
        latency, main = capacity.latency(self.objective), capacity.level and capacity.level.main_model
        if capacity.level:
            self._others.append(table.others(capacity.level, self.cores))
        seconds = time.monotonic() - begun
        return Trial(
            number=len(self.done) + 1,
            name=name,
            setting=dict(setting),
            status=status,
            capacity=capacity.rate,
            latency_ms=latency if math.isfinite(latency) else None,
            saturation=capacity.saturation,
            reachable=capacity.reachable,
            reason=capacity.reason,
            bottleneck=bottleneck.name(capacity.level, self.cores),
            rows_per_execution=main.rows_per_execution if main else None,
            overhead=max(0.0, seconds - self.meter.seconds),
            seconds=seconds,
        )

    def _failed(self, setting: Setting, name: str, begun: float, error: Exception) -> Trial:
        """The trial counts as failed; the server is started again if it ended."""
        if isinstance(error, TrbError) and error.code in (Code.NOT_EXPLICIT, Code.USAGE):
            raise error
        died = not self.live.http.answers_live()
        self.live.revive()
        if died:
            number = len(self.done) + 1
            self.notes.append(f"the server ended in trial {number} ({name}), and was started again")
        capacity = SettingCapacity(rate=0, level=None, saturation=0, reason=told(error))
        return self._trial(setting, name, begun, capacity, FAILED)

    def known(self, setting: Setting) -> Trial | None:
        """The trial of an equal setting; None if there is none."""
        key = factors.key(setting)
        return next((trial for trial in self.done if factors.key(trial.setting) == key), None)

    def best(self) -> float:
        """The highest capacity so far, requests per second."""
        return max((trial.capacity for trial in self.done), default=0.0)

    def mean(self) -> float:
        """Seconds that a trial takes."""
        return sum(trial.seconds for trial in self.done) / max(1, len(self.done))

    def overhead(self) -> float:
        """Seconds that a trial takes beside measuring."""
        return sum(trial.overhead for trial in self.done) / max(1, len(self.done))

    def _ceiling(self, most: float) -> str:
        best = self.best()
        return f"reaches at most {most:.1f}/s, the best so far {best:.1f}/s" if most < MARGIN * best else ""

    def disturbed(self) -> list[str]:
        """A note if other programs took a share of the machine that counts."""
        share = statistics.median(self._others) if self._others else 0.0
        if share <= table.NOISE:
            return []
        return [
            f"other programs used {share:.0%} of this machine's CPU in the median trial: run it again alone"
        ]


def value(trial: Trial) -> float:
    """Value for the sampler: a pruned trial counts with its upper bound, a failed one with 0."""
    return trial.reachable if trial.status == PRUNED else trial.capacity
