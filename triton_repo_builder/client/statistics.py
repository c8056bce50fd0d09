"""What the server counts of itself: statistics of every model, and the GPUs on its metrics page."""

from __future__ import annotations

import math
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton_repo_builder.bench.report.report import ModelSplit
from triton_repo_builder.client import HttpClient

PHASES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit")
GPU = re.compile(r'^nv_gpu_utilization\{[^}]*gpu_uuid="([^"]+)"[^}]*\}\s+(\S+)', re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Counters:
    """One model's statistics since it was loaded, all versions together."""

    rows: int = 0
    executions: int = 0
    times: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Count and nanoseconds of each phase."""
    batches: Mapping[int, int] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """Requests, well answered or not."""
        return sum(self.times.get(phase, (0, 0))[0] for phase in ("success", "fail"))


STILL = 0.1
"""Seconds without a change after which nothing is still to be counted."""
SETTLED = 2.0
"""Seconds to wait for that: with other clients about it never comes."""

Snapshot = Mapping[str, Counters]
"""Every model's counters at one moment."""


def snapshot(http: HttpClient) -> Snapshot:
    """Read all statistics; raises ``RequestFailed``."""
    return read(http.call("GET", "/v2/models/stats"))


def settled(http: HttpClient) -> Snapshot:
    """``snapshot`` once it stands still: Triton counts a request after its answer."""
    until = time.monotonic() + SETTLED
    now = snapshot(http)
    while time.monotonic() < until:
        time.sleep(STILL)
        last, now = now, snapshot(http)
        if now == last:
            break
    return now


def read(document: Mapping[str, Any]) -> Snapshot:
    """The answer of /v2/models/stats."""
    found: dict[str, Counters] = {}
    for entry in document.get("model_stats", ()):
        old = found.get(entry["name"], Counters())
        stats = entry.get("inference_stats", {})
        batches = Counter(old.batches)
        for batch in entry.get("batch_stats", ()):
            batches[int(batch["batch_size"])] += int(batch.get("compute_infer", {}).get("count", 0))
        found[entry["name"]] = Counters(
            rows=old.rows + int(entry.get("inference_count", 0)),
            executions=old.executions + int(entry.get("execution_count", 0)),
            times={phase: _add(old.times.get(phase, (0, 0)), stats.get(phase, {})) for phase in PHASES},
            batches=batches,
        )
    return found


def _add(old: tuple[int, int], new: Mapping[str, Any]) -> tuple[int, int]:
    return old[0] + int(new.get("count", 0)), old[1] + int(new.get("ns", 0))


def split(before: Snapshot, after: Snapshot, order: Sequence[str]) -> tuple[ModelSplit, ...]:
    """Every model that ran between two readings: those of ``order`` first, then what else ran."""
    names = [*order, *(name for name in after if name not in order)]
    splits = (_split(name, before.get(name, Counters()), after[name]) for name in names if name in after)
    return tuple(one for one in splits if one.requests or one.failed or one.executions)


def _split(name: str, before: Counters, after: Counters) -> ModelSplit:
    def grown(phase: str) -> tuple[int, int]:
        old, new = before.times.get(phase, (0, 0)), after.times.get(phase, (0, 0))
        return new[0] - old[0], new[1] - old[1]

    def mean(phase: str) -> float | None:
        count, nanoseconds = grown(phase)
        return nanoseconds / count / 1e6 if count else None

    rows, executions = after.rows - before.rows, after.executions - before.executions
    sizes = {size: count - before.batches.get(size, 0) for size, count in sorted(after.batches.items())}
    return ModelSplit(
        model=name,
        requests=grown("success")[0],
        rows=rows,
        executions=executions,
        failed=grown("fail")[0],
        cached=grown("cache_hit")[0],
        rows_per_execution=rows / executions if executions else None,
        request_ms=mean("success"),
        queue_ms=mean("queue"),
        input_ms=mean("compute_input"),
        infer_ms=mean("compute_infer"),
        output_ms=mean("compute_output"),
        batches={size: count for size, count in sizes.items() if count},
    )


def rows_counted(before: Snapshot, after: Snapshot, endpoint: str) -> int:
    """Rows an endpoint answered between two readings; answers from the cache are no inferences."""
    old, new = before.get(endpoint, Counters()), after.get(endpoint, Counters())
    cached = new.times.get("cache_hit", (0, 0))[0] - old.times.get("cache_hit", (0, 0))[0]
    return new.rows - old.rows + cached


def gpu_utilization(page: str) -> dict[str, float]:
    """Utilisation (0 to 1) of each GPU on a metrics page; those whose figure is no number are left out."""
    found = {uuid: float(value) for uuid, value in GPU.findall(page)}
    return {uuid: value for uuid, value in found.items() if math.isfinite(value)}


def metrics_page(url: str, timeout: float = 2.0) -> str:
    """The metrics page; empty where there is none."""
    return fetch(url, timeout)[0]


def fetch(url: str, timeout: float = 2.0) -> tuple[str, str]:
    """The metrics page, and why there is none."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return str(answer.read().decode("utf-8", "replace")), ""
    except (OSError, ValueError) as error:
        return "", str(getattr(error, "reason", "") or error)
