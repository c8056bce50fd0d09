"""One look at a running server: its endpoints, statistics, metrics, CPU time and memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.repository import composition
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.run.client import HttpClient, IndexEntry, NoAnswer, RequestFailed, Urls, statistics
from triton_repo_builder.run.client.statistics import Counters
from triton_repo_builder.run.client.values import understood
from triton_repo_builder.run.observe.exposition import Page, Sample, read
from triton_repo_builder.run.serve.processes import cpu, proc, stubs

TIMEOUT = 5.0
"""Seconds for each request."""
CONFIG_AGE = 60.0
"""Seconds after which configurations are read again; earlier if a model was loaded anew."""
MEMORY_AGE = 10.0
"""Seconds after which memory is read again: the kernel walks all pages of the server for it."""
LOCATE_AGE = 3.0
"""Seconds between two searches for a metrics page that is away."""
READY, NOT_READY, AWAY, NO_TRITON = "ready", "not ready", "away", "not a Triton"
ModelVersion = tuple[str, str]
"""Name and version of a model."""
MICROSECONDS = {
    "success": "request",
    "queue": "queue",
    "compute_input": "compute_input",
    "compute_infer": "compute_infer",
    "compute_output": "compute_output",
}
"""Phases of the statistics, and the middle of their names on the metrics page."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A server at one moment. Without an answer only ``at``, ``urls``, ``state`` and ``problem`` are set."""

    at: float
    """Seconds of a clock that only goes forward."""
    urls: Urls
    state: str
    """READY, NOT_READY, AWAY or NO_TRITON."""
    problem: str = ""
    """Why the server, or a part of the snapshot, is missing."""
    version: str = ""
    """The server's version, e.g. ``2.51.0``."""
    index: tuple[IndexEntry, ...] = ()
    """Empty also if the server lists its models for holders of its admin key only."""
    configs: Mapping[str, ModelConfig] = field(default_factory=dict)
    """Configurations of the loaded models, as far as the server gives them."""
    counters: Mapping[ModelVersion, Counters] = field(default_factory=dict)
    """Statistics of each loaded version."""
    samples: tuple[Sample, ...] = ()
    """The metrics page; empty without one."""
    metrics_problem: str = ""
    """Why the metrics page is missing, with its address."""
    pid: int | None = None
    """The server's process, if it runs on this machine and this user may see it."""
    cpu_seconds: float | None = None
    """CPU time of that process and all below it."""
    model_seconds: Mapping[ModelVersion, float] = field(default_factory=dict)
    """CPU time of the models that have processes of their own."""
    memory_bytes: int | None = None
    page: Page = field(default_factory=Page, compare=False)
    """The samples by their name."""

    @property
    def answers(self) -> bool:
        """Whether a Triton answered."""
        return self.state in (READY, NOT_READY)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the loaded models."""
        return tuple(dict.fromkeys(name for name, _ in self.counters))

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Names of the loaded models that clients call: those that are not steps of another."""
        return composition.outermost(self.models, self.steps_of)

    def steps_of(self, model: str) -> tuple[str, ...]:
        """The steps of an ensemble, as its configuration states them; empty for any other model."""
        return tuple(step.model_name for step in self.configs.get(model, ModelConfig()).steps)

    def versions(self, model: str) -> tuple[str, ...]:
        """The loaded versions of a model, ascending."""
        numbers = [version for name, version in self.counters if name == model]
        return tuple(sorted(numbers, key=lambda version: (len(version), version)))

    def members(self, endpoint: str, version: str) -> tuple[ModelVersion, ...]:
        """An endpoint's version and the model versions that it runs, nearest first, each once."""
        seen: dict[ModelVersion, None] = {}
        waiting = [(endpoint, version)]
        while waiting:
            model = waiting.pop(0)
            if model not in seen:
                seen[model] = None
                steps = self.configs.get(model[0], ModelConfig()).steps
                pinned = ((step.model_name, step.model_version) for step in steps)
                waiting += [
                    (name, str(number) if number > 0 else (self.versions(name) or ("",))[-1])
                    for name, number in pinned
                ]
        return tuple(seen)


def take(urls: Urls) -> Snapshot:
    """A snapshot of one server. A server that does not answer has a state, and raises nothing."""
    return Observer(urls).take()


class Observer:
    """Takes snapshots of one server. Keeps what seldom changes: configurations and the process.

    ``locate`` gives the current address of the metrics page: a server that was restarted may have another.
    """

    def __init__(self, urls: Urls, timeout: float = TIMEOUT, locate: Callable[[], str] | None = None) -> None:
        self.urls = urls
        self._locate, self._located_at = locate, -math.inf
        self._http = HttpClient(urls.http, timeout)
        self._timeout = timeout
        self._configs: dict[str, ModelConfig] = {}
        self._configs_at = 0.0
        self._counters: Mapping[ModelVersion, Counters] = {}
        self._pid: int | None = None
        self._owners: dict[int, ModelVersion] = {}
        self._memory: int | None = None
        self._memory_at = -math.inf

    def take(self) -> Snapshot:
        """A snapshot of now; raises nothing."""
        try:
            return self._take()
        except NoAnswer as error:
            state, problem = AWAY, error.message.removeprefix("no answer: ")
        except RequestFailed as error:
            state, problem = NO_TRITON, str(error)
        self._configs, self._counters = {}, {}
        return Snapshot(at=time.monotonic(), urls=self.urls, state=state, problem=problem)

    def _take(self) -> Snapshot:
        version = self._http.version()
        state = READY if self._http.ready() else NOT_READY
        index = self._index()
        at = time.monotonic()
        counters, problem = self._statistics()
        samples, metrics_problem = self._metrics({name for name, _ in counters})
        page = Page(samples)
        counters = counters or from_page(page)
        stats = self._processes()
        return Snapshot(
            at=at,
            urls=self.urls,
            state=state,
            problem=problem,
            version=version,
            index=index,
            configs=self._configurations(counters),
            counters=counters,
            samples=tuple(samples),
            metrics_problem=metrics_problem,
            pid=self._pid,
            cpu_seconds=sum(map(cpu.seconds, stats.values())) if stats else None,
            model_seconds=self._of_models(stats),
            memory_bytes=self._memory,
            page=page,
        )

    def _index(self) -> tuple[IndexEntry, ...]:
        try:
            return self._http.index_or_empty()
        except TrbError:  # for holders of the admin key only
            return ()

    def _statistics(self) -> tuple[dict[ModelVersion, Counters], str]:
        """Statistics of each version; else empty, and the reason."""
        try:
            with understood():
                return statistics.by_version(self._http.call("GET", "/v2/models/stats")), ""
        except NoAnswer:
            raise
        except RequestFailed as error:
            return {}, f"the server keeps its statistics to itself: {error}"

    def _metrics(self, models: Iterable[str]) -> tuple[list[Sample], str]:
        """The samples of the metrics page, which may have moved; else empty, and the reason."""
        samples, problem = self._read_page(self.urls.metrics, models)
        if problem and self._locate and time.monotonic() - self._located_at >= LOCATE_AGE:
            self._located_at = time.monotonic()
            url = self._locate()
            if url != self.urls.metrics:
                moved, missing = self._read_page(url, models)
                if not missing:
                    self.urls = replace(self.urls, metrics=url)
                    return moved, ""
        return samples, problem

    def _read_page(self, url: str, models: Iterable[str]) -> tuple[list[Sample], str]:
        names = set(models)
        if not url:
            return [], "the address of the metrics page is not known"
        text, reason = statistics.read_metrics(url, self._timeout)
        samples = read(text)
        counted = {sample.labels.get("model") for sample in samples if sample.name == "nv_inference_count"}
        if reason:
            return [], f"{url}: {reason}"
        if not samples:
            return [], f"{url}: not a metrics page"
        if counted and names and not counted & names:
            return [], f"{url}: the metrics page of another server, which has none of these models"
        return samples, ""

    def _configurations(self, counters: Mapping[ModelVersion, Counters]) -> dict[str, ModelConfig]:
        """Configurations of the models, read anew if a model may have been loaded again."""
        old, self._counters = self._counters, counters
        fell = any(key in counters and counters[key].requests < each.requests for key, each in old.items())
        if fell or old.keys() != counters.keys() or time.monotonic() - self._configs_at > CONFIG_AGE:
            self._configs, self._configs_at = {}, time.monotonic()
            for name in dict.fromkeys(name for name, _ in counters):
                try:
                    self._configs[name] = self._http.config(name)
                except NoAnswer:
                    raise
                except RequestFailed:  # just unloaded, or the server keeps it to itself
                    continue
        return self._configs

    def _processes(self) -> Mapping[int, list[str]]:
        """The server's process and all below it, with their /proc/PID/stat, if it runs on this machine."""
        stats = cpu.tree(self._pid) if self._pid else {}
        if not stats:
            self._pid = cpu.server_process(self.urls.http)
            stats = cpu.tree(self._pid) if self._pid else {}
            self._memory_at = -math.inf
        if time.monotonic() - self._memory_at > MEMORY_AGE:
            self._memory = cpu.tree_bytes(self._pid) if self._pid else None
            self._memory_at = time.monotonic()
        return stats

    def _of_models(self, stats: Mapping[int, list[str]]) -> dict[ModelVersion, float]:
        """CPU seconds of the Python processes, which the embedded engine also runs ONNX models in."""
        self._owners = {pid: owner for pid, owner in self._owners.items() if pid in stats}
        sums: dict[ModelVersion, float] = {}
        for pid, stat in stats.items():
            owner = self._owners.get(pid) or stubs.model_of(proc.arguments(pid))
            if owner:
                self._owners[pid] = owner
                sums[owner] = sums.get(owner, 0.0) + cpu.seconds(stat)
        return sums


def from_page(page: Page) -> dict[ModelVersion, Counters]:
    """Statistics of each version as the metrics page has them, for a server that gives them nowhere else."""
    counters = {}
    for sample in page.select("nv_inference_request_success"):
        labels = {name: sample.labels[name] for name in ("model", "version") if name in sample.labels}
        if len(labels) < 2 or (labels["model"], labels["version"]) in counters:
            continue

        def whole(name: str, labels: Mapping[str, str] = labels) -> int:
            return int(page.total(name, **labels) or 0)

        success = whole("nv_inference_request_success")
        times = {
            phase: (success, whole(f"nv_inference_{name}_duration_us") * 1000)
            for phase, name in MICROSECONDS.items()
        }
        counters[labels["model"], labels["version"]] = Counters(
            rows=whole("nv_inference_count"),
            executions=whole("nv_inference_exec_count"),
            times={**times, "fail": (whole("nv_inference_request_failure"), 0)},
        )
    return counters
