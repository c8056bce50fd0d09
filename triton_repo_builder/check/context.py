"""Input of every check: one model, its repository, the target release, and a way to report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.base.releases import Release
from triton_repo_builder.check import backends, python_source
from triton_repo_builder.check.codes import CODES
from triton_repo_builder.check.finding import Finding, Place, Severity
from triton_repo_builder.check.image import STOCK, Image
from triton_repo_builder.check.python_source import PythonSource
from triton_repo_builder.check.step_graph import StepGraph
from triton_repo_builder.model.read import skeleton
from triton_repo_builder.model.read.signature import ModelSignature, refine
from triton_repo_builder.repository import CONFIG, Model, Repository
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.pbtxt_document import Document, Key
from triton_repo_builder.runtime.onnxruntime_backend import ort_rules

LONGEST = 100
"""Characters of a file's name in a message."""


def _read(path: Path, release: Release) -> ModelSignature:
    """The signature with its outputs as ONNX Runtime sees them."""
    # These import onnx; a repository of Python models never needs it.
    from triton_repo_builder.model.graph import reader, shape_inference

    graph = skeleton.read(path)
    signature = reader.signature(graph)
    shapes = shape_inference.output_shapes(graph, signature, release)
    return replace(refine(signature, shapes.sizes), exact_outputs=shapes.exact)


@dataclass(frozen=True, kw_only=True)
class RepositoryContext:
    """One repository under check; remembers the graphs it has read."""

    repository: Repository
    release: Release
    image: Image = STOCK
    _models: dict[str, ModelContext] = field(default_factory=dict)
    _importable: dict[Path, frozenset[str]] = field(default_factory=dict)
    _sources: dict[Path, PythonSource] = field(default_factory=dict)
    _faults: dict[Path, tuple[str, ...]] = field(default_factory=dict)
    _kernels: dict[Path, tuple[str, ...]] = field(default_factory=dict)
    _graphs: dict[Path, ModelSignature | TrbError] = field(default_factory=dict)

    @cached_property
    def graph_of_steps(self) -> StepGraph:
        """Ensembles and their steps."""
        return StepGraph(repository=self.repository)

    def graph(self, path: Path) -> ModelSignature | TrbError:
        """The signature of an ONNX file, or why it cannot be read."""
        if path not in self._graphs:
            try:
                self._graphs[path] = _read(path, self.release)
            except TrbError as error:
                self._graphs[path] = error
        return self._graphs[path]

    def faults(self, path: Path) -> tuple[str, ...]:
        """Messages of ONNX Runtime that refuse nodes of a readable graph."""
        if path not in self._faults:
            from triton_repo_builder.model.graph import soundness

            self._faults[path] = tuple(soundness.faults(skeleton.read(path), self.release))
        return self._faults[path]

    def without_kernel(self, path: Path) -> tuple[str, ...]:
        """Messages of ONNX Runtime that refuse a readable graph on a CPU."""
        if path not in self._kernels:
            from triton_repo_builder.model.graph import soundness

            self._kernels[path] = tuple(soundness.without_kernel(skeleton.read(path), self.release))
        return self._kernels[path]

    def python(self, path: Path) -> PythonSource:
        """A parsed model.py. Raises OSError if it cannot be read."""
        if path not in self._sources:
            major, _, minor = self.release.python.partition(".")
            python = (int(major), int(minor))
            self._sources[path] = python_source.parse(files.read(path), path.name, python)
        return self._sources[path]

    def importable(self, folder: Path) -> frozenset[str]:
        """Names of the modules and folders in a folder, as an import writes them."""
        if folder not in self._importable:
            entries = [entry for entry in folder.iterdir() if entry.is_dir() or "." in entry.name]
            self._importable[folder] = frozenset(entry.name.partition(".")[0] for entry in entries)
        return self._importable[folder]

    def of(self, model: Model) -> ModelContext:
        """One of its models."""
        if model.name not in self._models:
            self._models[model.name] = ModelContext(repo=self, model=model)
        return self._models[model.name]


@dataclass(frozen=True, kw_only=True)
class ModelContext:
    """One model under check."""

    repo: RepositoryContext
    model: Model

    @property
    def name(self) -> str:
        """The model's name: the name of its directory."""
        return self.model.name

    @property
    def config(self) -> ModelConfig:
        """The parsed config.pbtxt."""
        return self.model.config

    @property
    def release(self) -> Release:
        """The release that is to serve it."""
        return self.repo.release

    @property
    def max_batch_size(self) -> int:
        """0 means that shapes have no implicit batch axis."""
        return self.config.max_batch_size

    @cached_property
    def backend(self) -> str:
        """The backend the server would choose, ``ensemble``, or ""."""
        return backends.backend_of(self.model)

    @cached_property
    def ensemble(self) -> bool:
        """Whether the model is (or is intended to be) an ensemble."""
        return backends.is_ensemble(self.model)

    @property
    def image(self) -> Image:
        """Backends, modules and GPUs of the image that serves the model."""
        return self.repo.image

    @property
    def relocated(self) -> bool:
        """Whether an agent may replace the files; ``checksum`` only compares them."""
        agents = self.config.raw.get("model_repository_agents", {}).get("agents", [])
        return any(agent.get("name") != "checksum" for agent in agents)

    @cached_property
    def completes(self) -> bool:
        """Whether the backend or the model may fill in tensors and ``max_batch_size``."""
        if self.backend == "python":
            files = [file for version in self.selected if (file := self.file(version)) and file.is_file()]
            return self.relocated or any(self.repo.python(file).completes for file in files)
        if self.backend == "onnxruntime":
            return not ((self.messages("input") or self.messages("batch_input")) and self.messages("output"))
        return self.backend not in backends.NEVER_COMPLETING

    @cached_property
    def scattered(self) -> frozenset[str]:
        """Outputs that a ``batch_output`` cuts into pieces."""
        entries = self.messages("batch_output")
        return frozenset(str(name) for item in entries for name in item.get("target_name", []))

    @cached_property
    def rows(self) -> int | None:
        """``max_batch_size`` once the model is loaded; None if it cannot be known."""
        if self.max_batch_size > 0 or not self.completes:
            return self.max_batch_size
        file = self.file(self.selected[-1]) if self.selected and self.backend == "onnxruntime" else None
        graph = self.repo.graph(file) if file is not None and file.is_file() else None
        if not isinstance(graph, ModelSignature):
            return None
        return ort_rules.DEFAULT_MAX_BATCH_SIZE if graph.batch.possible else 0

    def join(self, *segments: str) -> Path:
        """A path below the model's folder as the server opens it: a leading slash means nothing."""
        joined = "/".join((str(self.model.path), *(part.removeprefix("/") for part in segments)))
        return Path(c_string(joined))

    def absent(self, path: str) -> Severity:
        """Severity of a missing path: a path outside of the repository may exist on the server."""
        root = str(self.repo.repository.path.absolute())
        return "error" if not c_string(path) or path.startswith(f"{root}/") else "warning"

    @cached_property
    def selected(self) -> tuple[int, ...]:
        """The versions that would be loaded."""
        return self.model.selected

    @cached_property
    def document(self) -> Document:
        """The text of config.pbtxt with the positions of its fields."""
        return Document(self.model.text or "")

    def written(self, *path: str) -> bool:
        """Whether a field is written in the text, even with its default value."""
        if not all(name in (self.model.text or "") for name in path):
            return False  # most are not, and their places cost more than all else
        return any(self.document.fields.each(*path))

    def states(self, *path: str | int) -> bool:
        """Whether the field at this path of ``config.pbtxt`` is written, even with its default value."""
        field = self.document.find(path)
        return field is not None and not isinstance(path[-1], Key) and field.name == path[-1]

    def messages(self, *path: str) -> Sequence[Mapping[str, Any]]:
        """A repeated message field; empty if absent."""
        value: Any = self.config.raw
        for name in path:
            value = value.get(name, {})
        return value or []

    def file(self, version: int) -> Path | None:
        """The model file of a version; an ONNX "file" may be a directory that holds model.onnx."""
        name = backends.filename_of(self.model, self.backend)
        if name is None:
            return None
        path = self.join(str(version), name)
        return path / "model.onnx" if self.backend == "onnxruntime" and path.is_dir() else path

    def at(self, *path: str | int) -> Place:
        """Location of a field."""
        if self.model.text is None:
            return Place(self.model.path)
        field = self.document.find(path)
        file = self.model.path / CONFIG
        return Place(file, *self.document.place(field.start)) if field else Place(file)

    def finding(
        self, code: str, message: str, *path: str | int, remedy: str = "", severity: Severity | None = None
    ) -> Finding:
        """A finding at a field of config.pbtxt."""
        return report(code, self.at(*path), message, remedy=remedy, severity=severity)


def relative(path: str, *, library: bool = False) -> str:
    """Message for a path that the server does not resolve in the model's folder; empty if absolute.

    Such a file on this machine proves nothing: the server has its own working directory.
    """
    if path.startswith("/") or not c_string(path):
        return ""
    searched = library and "/" not in path  # by the loader of libraries
    folders = "the server's library path" if searched else "the server's working directory"
    return f"'{path}' is looked for in {folders}, not in the model's folder"


def c_string(text: str) -> str:
    """A path as the operating system gets it from the server, in C: up to the first NUL."""
    return text.partition("\0")[0]


def report(
    code: str, where: str, message: str, *, remedy: str = "", severity: Severity | None = None
) -> Finding:
    """A finding at any place; severity and remedy default to the code's."""
    entry = CODES[code]
    return Finding.at(
        where if isinstance(where, Place) else Place(where),
        severity=severity or entry.severity,
        code=code,
        message=message,
        remedy=remedy or entry.remedy,
    )


def readable(path: Path, findings: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of one rule on a path and the files below it.

    An unreadable file is a further finding; the other rules still run.
    """
    try:
        yield from findings()
    except OSError as error:
        file = Path(str(error.filename or path))
        shown = str(file) if len(file.name) <= LONGEST else f"{file.parent}/{file.name[:LONGEST]}…"
        yield report("file-unreadable", str(path), f"cannot be read: {error.strerror or error}: {shown}")
