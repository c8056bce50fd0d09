"""Facts that causes are derived from: files of a repository, a server's statistics and metrics, its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from triton_repo_builder import check
from triton_repo_builder.base.releases import Release
from triton_repo_builder.check.context import ModelContext, RepositoryContext
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.check.image import Image
from triton_repo_builder.measure.doctor.expected import Comparison
from triton_repo_builder.repository import Repository
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.run.client.statistics import Counters
from triton_repo_builder.run.observe.snapshot import Snapshot

ACCELERATORS = ("optimization", "execution_accelerators", "gpu_execution_accelerator")
"""Path to a model's accelerators on a GPU."""
ENOUGH = 20
"""Executions from which on their mean size says something."""


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """One model: its configuration, its files if they are here, its counters if a server runs it."""

    name: str
    config: ModelConfig
    context: ModelContext | None = None
    counters: Counters = field(default_factory=Counters)
    address: str = ""
    """The server, for a model without files here."""

    @property
    def tensorrt(self) -> Mapping[str, Any] | None:
        """Parameters of its TensorRT accelerator; None without one."""
        value: Any = self.config.raw
        for key in ACCELERATORS:
            value = value.get(key) or {}
        entry = next((item for item in value if item.get("name") == "tensorrt"), None)
        return None if entry is None else entry.get("parameters") or {}

    @property
    def backend(self) -> str:
        """The backend that runs it, or ``ensemble``."""
        return self.context.backend if self.context else self.config.runs_on

    @property
    def ensemble(self) -> bool:
        """Whether it is an ensemble."""
        return self.context.ensemble if self.context else self.config.runs_on == "ensemble"

    @property
    def rows(self) -> int:
        """``max_batch_size`` once it is loaded; 0 also if it cannot be known."""
        return (self.context.rows or 0) if self.context else self.config.max_batch_size

    @property
    def ratio(self) -> float | None:
        """Rows of an execution, on average; None below ``ENOUGH`` executions."""
        counted = self.counters
        return counted.rows / counted.executions if counted.executions >= ENOUGH else None

    @property
    def merges(self) -> bool:
        """Whether executions held more than one request, on average by a tenth."""
        answered = self.counters.times.get("success", (0, 0))[0]
        return answered > 1.1 * self.counters.executions

    @property
    def ratio_text(self) -> str:
        """The numbers behind ``ratio``, in words."""
        counted = self.counters
        return (
            f"inference_count {counted.rows} / execution_count {counted.executions} = "
            f"{counted.rows / counted.executions:.2f} rows per execution"
        )

    def mean_ms(self, phase: str) -> float:
        """Mean milliseconds of a phase; 0 without requests."""
        count, nanoseconds = self.counters.times.get(phase, (0, 0))
        return nanoseconds / count / 1e6 if count else 0.0

    def at(self, *path: str | int) -> str:
        """Location of a field of its configuration."""
        if self.context is None:
            return f"{self.address}/v2/models/{self.name}/config: {'.'.join(map(str, path))}"
        return str(self.context.at(*path))


EDITED = ("manifest-changed", "manifest-content", "manifest-sources")
"""Findings of ``trb check`` about files that are not as ``trb build`` wrote them."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything that was read."""

    release: Release
    questions: frozenset[str] = frozenset()
    """Questions that were named; empty if none was, and all are answered."""
    repository: Repository | None = None
    snapshot: Snapshot | None = None
    unready: frozenset[str] = frozenset()
    """Loaded models that say that they are not ready."""
    log: str = ""
    gpus: int | None = None
    """GPUs of the server's machine; None if unknown."""
    gpus_stated: bool = False
    """Whether the user said so: then a repository for another number is an error."""
    shared_memory: tuple[int, int] | None = None
    """Bytes of the server's /dev/shm and those free, if it runs on this machine."""
    slow_starts: tuple[tuple[str, float, float], ...] = ()
    """Endpoint, milliseconds of its first request, and of a later one."""
    beside: tuple[tuple[str, str, float, int], ...] = ()
    """Endpoint, output, difference of rows alone and in a batch, and the number of these rows."""
    expected: Comparison | None = None
    """Vectors that the user expects, beside an endpoint's."""

    @cached_property
    def context(self) -> RepositoryContext | None:
        """The repository as the rules of ``trb check`` see it."""
        if self.repository is None:
            return None
        return RepositoryContext(repository=self.repository, release=self.release, image=self.image)

    @property
    def image(self) -> Image:
        """The image that serves, as far as the user stated it."""
        return Image(gpus=self.gpus) if self.gpus_stated else Image()

    @cached_property
    def findings(self) -> list[Finding]:
        """Findings of ``trb check``."""
        if self.repository is None:
            return []
        return check.check(self.repository, self.release, image=self.image)

    @cached_property
    def broken(self) -> frozenset[str]:
        """Models with an error, which say nothing else. A changed file is none: the server loads it."""
        return frozenset(
            finding.model
            for finding in self.findings
            if finding.severity == "error" and finding.code not in EDITED
        )

    @cached_property
    def models(self) -> tuple[ModelFacts, ...]:
        """The models of the repository, else those that the server has loaded."""
        return tuple(self._models())

    def _models(self) -> Iterator[ModelFacts]:
        if self.repository is not None and self.context is not None:
            for model in self.repository.models:
                if model.error is None and model.stated:
                    context = self.context.of(model)
                    yield ModelFacts(
                        name=model.name,
                        config=model.config,
                        context=context,
                        counters=self.counters(model.name),
                    )
        elif self.snapshot is not None:
            for name, config in self.snapshot.configs.items():
                counters = self.counters(name)
                yield ModelFacts(name=name, config=config, counters=counters, address=self.snapshot.urls.http)

    def counters(self, name: str) -> Counters:
        """Counters of a model's newest loaded version."""
        if self.snapshot is None:
            return Counters()
        versions = self.snapshot.versions(name)
        return self.snapshot.counters[name, versions[-1]] if versions else Counters()

    def model(self, name: str) -> ModelFacts | None:
        """The model of that name."""
        return next((model for model in self.models if model.name == name), None)

    def is_asked(self, question: str) -> bool:
        """Whether this question was named: settings that by themselves do no harm then count."""
        return question in self.questions
