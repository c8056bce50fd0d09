"""The results of a run as frozen values; ``to_json`` is the schema of docs/bench.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from triton_repo_builder.measure.bench.options import OPEN
from triton_repo_builder.run.client.statistics import ModelSplit

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Milliseconds of answered requests, from all their exact times."""

    mean: float
    std: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, kw_only=True)
class Window:
    """One measured stretch of a level."""

    seconds: float
    answered: int
    arrived: int
    """Requests that were due in the window; in a closed loop, that were sent."""
    failed: int
    latency: Latency | None
    """None if nothing was answered."""

    @property
    def throughput(self) -> float:
        """Answered requests per second."""
        return self.answered / self.seconds


@dataclass(frozen=True, kw_only=True)
class Client:
    """The load generator's own load; None if the level ended before it was read."""

    processes: int
    busiest_core: float | None
    """Share of a core that the busiest client process used."""
    cores: float | None
    """Cores that all client processes used together."""
    cpu_ms: float | None
    """Client CPU per answered request."""
    lag_ms: float | None
    """95th percentile of how late its event loop ran."""
    machine_busy: float | None
    """Share of this machine's CPUs that anything used."""


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Counts of the whole level, warm-up and end included: by the clients and by the server."""

    sent: int
    answered: int
    failed: int
    server_rows: int | None
    """Rows that the endpoint's statistics grew by, cached ones included."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """One load on one variant."""

    variant: str
    endpoint: str
    protocol: str
    mode: str
    concurrency: int | None
    rate: float | None
    length: int | None
    rows: int
    seconds: float
    answered: int
    throughput: float
    """Answered requests per second."""
    rows_per_second: float
    latency: Latency | None
    failures: Mapping[str, int]
    examples: Mapping[str, str]
    """The first message of each kind of failure, warm-up included."""
    stable: bool | None
    """None if there were too few windows."""
    spread: Mapping[str, float | None]
    """Largest distance from the mean over the last windows, as a share of it; None if unknown."""
    windows: tuple[Window, ...]
    models: tuple[ModelSplit, ...]
    split_seconds: float | None
    """Seconds that ``models`` covers; fewer than ``seconds`` if a model was missing part of the time."""
    outside_ms: float | None
    """Client's mean latency less the server's: network, encoding and the client itself.

    None if the two are not means of the same requests: some failed, or the split covers another time.
    """
    server_cpu_ms: float | None
    server_cores: float | None
    gpu_utilization: Mapping[str, float]
    client: Client
    bottleneck: str
    """Why the client may have been the limit; empty if it was not."""
    totals: Totals
    ended: str
    """Why the level ended before its time, and when; empty if it did not."""
    sent: str
    """Digest of the texts or tensors that were sent."""
    response_cache: float | None = None
    """Share of requests that the server answered from its cache of answers."""
    tokenizer_cache: float | None = None
    """Share of texts whose tokens the tokenizer held; None if it keeps none."""
    goodput: float | None = None
    """Answers per second within the objective's time; None without an objective."""

    @property
    def load(self) -> str:
        """``16 clients`` or ``50/s``."""
        if self.mode == OPEN:
            return f"{self.rate:g}/s"
        return f"{self.concurrency} client{'s' * (self.concurrency != 1)}"

    @property
    def failed(self) -> int:
        """Failures in the measured windows."""
        return sum(self.failures.values())

    @property
    def main_model(self) -> ModelSplit | None:
        """The model with the most compute time: the one whose batching matters."""
        inner = [model for model in self.models if model.model != self.endpoint] or list(self.models)
        return max(inner, key=lambda model: (model.infer_ms or 0.0) * model.requests, default=None)

    @property
    def busiest_gpu(self) -> float | None:
        """The largest share of all GPUs: idle ones without an instance of the model would distort a mean."""
        return max(self.gpu_utilization.values(), default=None)

    @property
    def key(self) -> tuple[Any, ...]:
        """Key by which levels of two reports are compared."""
        return (self.protocol, self.mode, self.concurrency, self.rate, self.length, self.rows)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """This run's number over the other's: above 1 is good for throughput, below 1 for the rest."""

    variant: str
    against: str
    level: str
    throughput: float | None
    p50: float | None
    p99: float | None
    server_cpu: float | None


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """Comparison with an earlier report."""

    file: str
    ratios: tuple[Ratio, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Slower:
    """A quantity of a level that is worse than ``--max-regression`` allows."""

    variant: str
    against: str
    """The other variant, or the file of the baseline."""
    level: str
    quantity: str
    """``throughput`` or ``p99``."""
    ratio: float
    limit: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer to ``--max-regression``."""

    max_regression: float
    passed: bool
    slower: tuple[Slower, ...]
    not_compared: tuple[str, ...]
    """Levels without a counterpart, or whose counterpart had no answer."""


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    """One run."""

    command: str
    started: str
    seconds: float
    client: str
    """``trb``; earlier releases also wrote ``perf-analyzer``."""
    servers: tuple[Mapping[str, Any], ...]
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    options: Mapping[str, Any]
    texts: Mapping[str, Any]
    levels: tuple[Level, ...]
    notes: tuple[str, ...]
    ratios: tuple[Ratio, ...] = ()
    """Comparison of every further variant with the first."""
    baseline: Baseline | None = None
    verdict: Verdict | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, as docs/bench.md describes them."""
        document = {"schema": SCHEMA, **asdict(self)}
        for entry, level in zip(document["levels"], self.levels, strict=True):
            for stretch, window in zip(entry["windows"], level.windows, strict=True):
                stretch["throughput"] = window.throughput
        return document
