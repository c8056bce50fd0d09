"""The server's own counters: statistics of every model, and the GPUs on its metrics page."""

from __future__ import annotations

import math
import re
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from triton_repo_builder.run.client.http import HttpClient
from triton_repo_builder.run.client.values import RequestFailed, understood

TOKEN_CACHE = ("trb_token_cache_hits_total", "trb_token_cache_misses_total")
"""Counters of the tokenizer model, for ``runtime/token_cache.py``."""
TOKENS = re.compile(rf'^({"|".join(TOKEN_CACHE)}){{model="([^"]*)"[^}}]*}} ([0-9.e+]+)$', re.MULTILINE)
PHASES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit")
COMPUTING = ("compute_input", "compute_infer", "compute_output")
GPU = re.compile(r'^nv_gpu_utilization\{[^}]*gpu_uuid="([^"]+)"[^}]*\}\s+(\S+)', re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Counters:
    """One model's statistics since it was loaded, all versions together."""

    rows: int = 0
    executions: int = 0
    times: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Count and nanoseconds of each phase."""
    batches: Mapping[int, int] = field(default_factory=dict)
    """Executions by batch size."""
    computing: int = 0
    """Nanoseconds of all executions, input and output included; 0 if the server does not say."""

    @property
    def requests(self) -> int:
        """Requests, well answered or not."""
        return sum(self.times.get(phase, (0, 0))[0] for phase in ("success", "fail"))

    @property
    def cached(self) -> int:
        """Requests that were answered from the cache; they are not in ``rows``."""
        return self.times.get("cache_hit", (0, 0))[0]


@dataclass(frozen=True, kw_only=True)
class ModelSplit:
    """One model's work between two snapshots; times are means per request."""

    model: str
    requests: int
    rows: int
    executions: int
    failed: int
    cached: int
    rows_per_execution: float | None
    request_ms: float | None
    """Time from arrival in the server to the answer, queue and compute included."""
    queue_ms: float | None
    input_ms: float | None
    infer_ms: float | None
    output_ms: float | None
    batches: Mapping[int, int]
    """Executions by batch size."""


ModelCounters = Mapping[str, Counters]
"""Every model's counters at one moment."""
TICK = 0.02
"""Seconds between two readings while waiting."""
STILL = 0.05
"""Seconds without a change after which every answer is taken to be counted."""
PATIENCE = 2.0
"""Seconds to wait for that."""


def read(http: HttpClient) -> ModelCounters:
    """Read all statistics; raises ``RequestFailed``."""
    with understood():
        return parse(http.call("GET", "/v2/models/stats"))


def read_or_empty(http: HttpClient) -> ModelCounters:
    """``read``, and empty if the server does not give its statistics (any more)."""
    try:
        return read(http)
    except RequestFailed:
        return {}


def wait_until(
    http: HttpClient, done: Callable[[ModelCounters], bool], patience: float
) -> tuple[ModelCounters, bool]:
    """The counters once they are ``done``, or after ``patience`` seconds; and whether they are."""
    deadline = time.monotonic() + patience
    while not done(counters := read_or_empty(http)):
        if time.monotonic() > deadline:
            return counters, False
        time.sleep(TICK)
    return counters, True


def settled(http: HttpClient, models: Collection[str]) -> ModelCounters:
    """These models' counters once they stand still: Triton counts a request after its answer.

    With other clients about they never do: then the last reading after ``PATIENCE``.
    """
    deadline = time.monotonic() + PATIENCE
    previous: ModelCounters = {}
    while True:
        latest = {name: counters for name, counters in read(http).items() if name in models}
        if latest == previous or time.monotonic() > deadline:
            return latest
        previous = latest
        time.sleep(STILL)


def parse(document: Mapping[str, Any]) -> ModelCounters:
    """The answer of /v2/models/stats. Raises one of ``files.DAMAGED``."""
    models: dict[str, Counters] = {}
    for (name, _), counters in by_version(document).items():
        old = models.get(name, Counters())
        models[name] = Counters(
            rows=old.rows + counters.rows,
            executions=old.executions + counters.executions,
            times={phase: _sum(old.times.get(phase, (0, 0)), counters.times[phase]) for phase in PHASES},
            batches=dict(Counter(old.batches) + Counter(counters.batches)),
            computing=old.computing + counters.computing,
        )
    return models


def by_version(document: Mapping[str, Any]) -> dict[tuple[str, str], Counters]:
    """Counters of each model and version, of the answer. Raises one of ``files.DAMAGED``."""
    entries = document.get("model_stats", ())
    return {(str(entry["name"]), str(entry.get("version", ""))): _counters(entry) for entry in entries}


def _counters(entry: Mapping[str, Any]) -> Counters:
    stats = entry.get("inference_stats", {})
    batches: Counter[int] = Counter()
    computing = 0
    for batch in entry.get("batch_stats", ()):
        batches[int(batch["batch_size"])] += int(batch.get("compute_infer", {}).get("count", 0))
        computing += sum(int(batch.get(phase, {}).get("ns", 0)) for phase in COMPUTING)
    phases = {phase: stats.get(phase, {}) for phase in PHASES}
    return Counters(
        rows=int(entry.get("inference_count", 0)),
        executions=int(entry.get("execution_count", 0)),
        times={phase: (int(each.get("count", 0)), int(each.get("ns", 0))) for phase, each in phases.items()},
        batches=dict(batches),
        computing=computing,
    )


def _sum(old: tuple[int, int], new: tuple[int, int]) -> tuple[int, int]:
    return old[0] + new[0], old[1] + new[1]


def growth(before: ModelCounters, after: ModelCounters, model: str) -> Counters:
    """A model's counts between two snapshots."""
    return grown(before.get(model, Counters()), after.get(model, Counters()))


def grown(old: Counters, new: Counters) -> Counters:
    """Counts between two readings of the same counters."""
    batches = {size: count - old.batches.get(size, 0) for size, count in sorted(new.batches.items())}

    def phase(name: str) -> tuple[int, int]:
        (old_count, old_ns), (count, ns) = old.times.get(name, (0, 0)), new.times.get(name, (0, 0))
        return count - old_count, ns - old_ns

    return Counters(
        rows=new.rows - old.rows,
        executions=new.executions - old.executions,
        times={name: phase(name) for name in new.times},
        batches={size: count for size, count in batches.items() if count},
        computing=new.computing - old.computing,
    )


def split(before: ModelCounters, after: ModelCounters, order: Sequence[str]) -> tuple[ModelSplit, ...]:
    """Every model that ran between two snapshots: ``order`` first, then other models that ran."""
    names = [name for name in dict.fromkeys([*order, *after]) if name in after]
    splits = (_split(name, growth(before, after, name)) for name in names)
    return tuple(model for model in splits if model.requests or model.failed or model.executions)


def _split(name: str, counters: Counters) -> ModelSplit:
    def mean(phase: str) -> float | None:
        count, nanoseconds = counters.times.get(phase, (0, 0))
        return nanoseconds / count / 1e6 if count else None

    return ModelSplit(
        model=name,
        requests=counters.times.get("success", (0, 0))[0],
        rows=counters.rows,
        executions=counters.executions,
        failed=counters.times.get("fail", (0, 0))[0],
        cached=counters.cached,
        rows_per_execution=counters.rows / counters.executions if counters.executions else None,
        request_ms=mean("success"),
        queue_ms=mean("queue"),
        input_ms=mean("compute_input"),
        infer_ms=mean("compute_infer"),
        output_ms=mean("compute_output"),
        batches=counters.batches,
    )


def rows_counted(before: ModelCounters, after: ModelCounters, endpoint: str) -> int:
    """Rows an endpoint answered between two snapshots, from the cache included."""
    counters = growth(before, after, endpoint)
    return counters.rows + counters.cached


def read_metrics(url: str, timeout: float = 2.0) -> tuple[str, str]:
    """The metrics page; else empty, and the reason."""
    parts = urllib.parse.urlsplit(url)
    path = ("" if parts.path.strip("/") else "/metrics") + (f"?{parts.query}" if parts.query else "")
    try:
        answer = HttpClient(url, timeout).send("GET", path)
    except RequestFailed as error:
        return "", error.message
    if answer.status != 200:
        return "", f"HTTP status {answer.status}"
    return answer.data.decode("utf-8", "replace"), ""


def token_cache(page: str, models: Collection[str]) -> tuple[float, float]:
    """Hits and misses of these models' tokenizer caches, in texts."""
    counts = dict.fromkeys(TOKEN_CACHE, 0.0)
    for name, model, text in TOKENS.findall(page):
        if model in models:
            counts[name] += float(text)
    hits, misses = counts.values()
    return hits, misses


def gpu_utilization(page: str) -> dict[str, float]:
    """Utilisation (0 to 1) of each GPU on a metrics page; one whose value is not a number is left out."""
    values = {}
    for uuid, text in GPU.findall(page):
        with suppress(ValueError):
            values[uuid] = float(text)
    return {uuid: value for uuid, value in values.items() if math.isfinite(value)}
