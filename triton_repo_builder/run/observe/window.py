"""Rates between two snapshots of a server: per endpoint and version, per step, and of the server.

A value that is not known is None; nothing is estimated in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from triton_repo_builder.repository import composition
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.run.client.statistics import Counters, grown
from triton_repo_builder.run.client.values import IndexEntry
from triton_repo_builder.run.observe.exposition import Page
from triton_repo_builder.run.observe.growth import Growth, Latency, merged, per_second
from triton_repo_builder.run.observe.snapshot import ModelVersion, Snapshot

SUMMARY = "nv_inference_request_summary_us"
"""Percentiles of the last minute, of a server with ``--metrics-config=summary_latencies=true``."""
COUNTED = {"ensemble": 2}
"""How often tritonserver counts a failed request: an ensemble counts it when it answers, and when it ends
(core: ``FinishEnsemble`` in ensemble_scheduler.cc; observed on 24.10, the same in 26.06)."""


@dataclass(frozen=True, kw_only=True)
class ModelWindow:
    """One version of one model between two snapshots, from its own counters."""

    model: str
    version: str
    backend: str
    """``ensemble``, ``onnxruntime``, ``python`` …; empty if the server does not say."""
    shared_with: tuple[str, ...] = ()
    """Other endpoints that run this model: its numbers are of all of them."""
    requests: int
    requests_per_s: float
    rows_per_s: float
    rows_per_execution: float | None
    latency: Latency
    queue_ms: float | None
    infer_ms: float | None
    busy: float | None
    """Executions that ran at the same time, on average."""
    cores: float | None = None
    """CPU cores in use by its processes, if it has any of its own."""
    pending: float | None
    """Requests that wait for an execution at this moment."""
    failures: Mapping[str, float]
    """Failed requests per second by the server's reason; ``unknown`` if only their number is known."""
    batches: Mapping[int, int]
    """Executions by batch size."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """Growth of the tokenizer's counters (``COUNTS``), as far as they are known."""
    refused: Mapping[str, float] = field(default_factory=dict)
    """Refused texts, images and sounds per second by reason."""
    labels: Mapping[str, float] = field(default_factory=dict)
    """Answers by label, type or outcome."""
    means: Mapping[str, float] = field(default_factory=dict)
    """``answer_confidence``, ``embedding_norm``, ``transcript_characters``, as far as they are known."""
    phases: Mapping[str, Latency] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EndpointWindow:
    """One version of an endpoint, with all that it runs."""

    endpoint: str
    version: str
    models: tuple[ModelWindow, ...]
    """The endpoint itself, then the steps that it runs. Empty if it was not there at both snapshots."""
    runs: Mapping[str, int] = field(default_factory=dict)
    """How often one request runs each model."""

    @property
    def itself(self) -> ModelWindow | None:
        """The endpoint's own counters."""
        return self.models[0] if self.models else None

    @property
    def steps(self) -> tuple[ModelWindow, ...]:
        """The models that do the work: the steps of an ensemble, else the endpoint itself."""
        inner = tuple(model for model in self.models[1:] if model.backend != "ensemble")
        return inner or self.models[:1]

    @property
    def queue_ms(self) -> float | None:
        """Mean milliseconds of a request in the queues of all steps: an ensemble's own counter has none."""
        times = [(step.queue_ms, self.runs.get(step.model, 1)) for step in self.steps]
        values = [queue * number for queue, number in times if queue is not None]
        return sum(values) if values else None

    @property
    def rows_per_execution(self) -> float | None:
        """Rows of one execution of the model step: of those not in Python, the one that computes longest."""
        ran = [step for step in self.steps if step.rows_per_execution is not None]
        ran = [step for step in ran if step.backend != "python"] or ran
        return max(ran, key=lambda step: step.busy or 0.0).rows_per_execution if ran else None

    @property
    def busy(self) -> float | None:
        """Executions of its steps that ran at the same time, on average."""
        values = [step.busy for step in self.steps if step.busy is not None]
        return sum(values) if values else None

    @property
    def cores(self) -> float | None:
        """CPU cores in use by its steps, if each has processes of its own."""
        values = [step.cores for step in self.steps if step.cores is not None]
        return sum(values) if values and len(values) == len(self.steps) else None

    @property
    def pending(self) -> float | None:
        """Requests that wait in the queues of its steps at this moment."""
        values = [step.pending for step in self.steps if step.pending is not None]
        return sum(values) if values else None

    @property
    def refused(self) -> dict[str, float]:
        """Refused texts, images and sounds per second by reason."""
        return merged(model.refused for model in self.models)

    @property
    def labels(self) -> dict[str, float]:
        """Share of each label in the answers, the most frequent first."""
        counts = merged(model.labels for model in self.models)
        total = sum(counts.values())
        ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        return {label: count / total for label, count in ordered if count} if total else {}

    def mean(self, name: str) -> float | None:
        """A mean of the answers, of the last step that has it."""
        values = [model.means[name] for model in self.models if name in model.means]
        return values[-1] if values else None

    def ratio(self, part: str, whole: str) -> float | None:
        """A counter by another, e.g. ``tokens`` by ``texts``."""
        counts = merged(model.counts for model in self.models)
        return counts[part] / counts[whole] if part in counts and counts.get(whole) else None


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU of a server at this moment."""

    uuid: str
    utilization: float | None
    used_bytes: float | None
    total_bytes: float | None


@dataclass(frozen=True, kw_only=True)
class Window:
    """A server between two snapshots."""

    before: Snapshot
    after: Snapshot
    seconds: float | None
    """None unless it answered both times."""
    endpoints: tuple[EndpointWindow, ...]
    cores: float | None
    """CPU cores in use by the server's processes."""
    gpus: tuple[Gpu, ...]

    @property
    def machine_cpu(self) -> float | None:
        """Share of the CPU time of the server's machine or container that is in use, as the server says."""
        return self.after.page.total("nv_cpu_utilization")

    @property
    def failed(self) -> tuple[IndexEntry, ...]:
        """Versions that the server could not load, or that it lost."""
        return tuple(entry for entry in self.after.index if entry.failed)


def between(before: Snapshot, after: Snapshot) -> Window:
    """The rates of a server between two of its snapshots."""
    answered = before.answers and after.answers and after.at > before.at
    seconds = after.at - before.at if answered else None
    same = seconds is not None and before.pid == after.pid
    cores = _cores(before.cpu_seconds, after.cpu_seconds, seconds or 0.0) if same else None
    return Window(
        before=before,
        after=after,
        seconds=seconds,
        endpoints=tuple(_endpoints(before, after, seconds)),
        cores=cores,
        gpus=_gpus(after.page),
    )


def _endpoints(before: Snapshot, after: Snapshot, seconds: float | None) -> Iterator[EndpointWindow]:
    names = after.endpoints
    users = {model: composition.needing(model, names, after.steps_of) for model in after.models}
    for name in names:
        runs = composition.executions(name, after.steps_of)
        for version in after.versions(name):
            models: list[ModelWindow] = []
            for key in after.members(name, version) if seconds else ():
                if key in before.counters and key in after.counters:
                    others = tuple(other for other in users.get(key[0], ()) if other != name)
                    models.append(_model(before, after, key, others))
            if models and models[0].model != name:
                models = []
            yield EndpointWindow(endpoint=name, version=version, models=tuple(models), runs=dict(runs))


def _model(before: Snapshot, after: Snapshot, key: ModelVersion, shared_with: tuple[str, ...]) -> ModelWindow:
    model, version = key
    seconds = after.at - before.at
    counted = _counted(before.counters[key], after.counters[key])
    metrics = Growth(before.page, after.page, key)
    backend = after.configs.get(model, ModelConfig()).runs_on
    requests, nanoseconds = counted.times.get("success", (0, 0))
    return ModelWindow(
        model=model,
        version=version,
        backend=backend,
        shared_with=shared_with,
        requests=requests,
        requests_per_s=requests / seconds,
        rows_per_s=(counted.rows + counted.cached) / seconds,
        rows_per_execution=counted.rows / counted.executions if counted.executions else None,
        latency=Latency(
            mean=nanoseconds / requests / 1e6 if requests else None,
            p50=_summary(after.page, key, "0.5") if requests else None,
            p99=_summary(after.page, key, "0.99") if requests else None,
        ),
        queue_ms=_mean(counted, "queue"),
        infer_ms=_mean(counted, "compute_infer"),
        busy=counted.computing / 1e9 / seconds if after.counters[key].batches else None,
        cores=_cores(before.model_seconds.get(key), after.model_seconds.get(key), seconds),
        pending=after.page.total("nv_inference_pending_request_count", model=model, version=version),
        failures=_failures(metrics, counted, seconds * COUNTED.get(backend, 1)),
        batches=counted.batches,
        counts=metrics.texts(),
        refused=per_second(metrics.refused(), seconds),
        labels=metrics.labels(),
        means=metrics.means(),
        phases=metrics.phases(),
    )


def _counted(old: Counters, new: Counters) -> Counters:
    """Growth of a version's counters; all of the new ones if it was loaded anew in between."""
    anew = new.requests < old.requests or new.executions < old.executions
    return grown(Counters() if anew else old, new)


def _cores(before: float | None, after: float | None, seconds: float) -> float | None:
    """Cores in use, of two readings of CPU time; None if a process ended in between."""
    return None if before is None or after is None or after < before else (after - before) / seconds


def _mean(counted: Counters, phase: str) -> float | None:
    count, nanoseconds = counted.times.get(phase, (0, 0))
    return nanoseconds / count / 1e6 if count else None


def _summary(page: Page, key: ModelVersion, share: str) -> float | None:
    """A percentile that the server computes, in milliseconds."""
    value = page.total(SUMMARY, model=key[0], version=key[1], quantile=share)
    return None if value is None else value / 1000


def _failures(metrics: Growth, counted: Counters, seconds: float) -> dict[str, float]:
    """Failures by reason. The statistics have their number, the metrics their reasons."""
    reasons = per_second(metrics.by("reason", "nv_inference_request_failure"), seconds)
    failed = counted.times.get("fail", (0, 0))[0]
    return reasons or ({"unknown": failed / seconds} if failed else {})


def _gpus(page: Page) -> tuple[Gpu, ...]:
    names = ("nv_gpu_utilization", "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes")
    use, used, total = (page.by("gpu_uuid", name) for name in names)
    return tuple(
        Gpu(
            uuid=uuid,
            utilization=use.get(uuid),
            used_bytes=used.get(uuid),
            total_bytes=total.get(uuid),
        )
        for uuid in sorted({*use, *used})
    )
