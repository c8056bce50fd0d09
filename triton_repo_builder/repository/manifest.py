"""manifest.json: endpoints with their sources and options, and every file that ``trb`` wrote.

Its schema is docs/schema/manifest.schema.json.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from triton_repo_builder import __version__
from triton_repo_builder.base import files, transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.edits import Edit
from triton_repo_builder.repository.interface import Endpoint

MANIFEST = "manifest.json"
CASES = "smoke.json"
"""Golden cases of an endpoint."""
LONGEST_NAME = 255
"""Bytes of a file's name, on every file system of Linux."""
T = TypeVar("T")
GENERATOR = {"name": "triton_repo_builder", "version": __version__}


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One of the user's files that an endpoint was built from."""

    file: str
    sha256: str
    bytes: int

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> SourceFile:
        return cls(
            file=str(document["file"]), sha256=str(document["sha256"]), bytes=int(document.get("bytes", 0))
        )

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "sha256": self.sha256, "bytes": self.bytes}


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """A file that ``trb`` wrote."""

    sha256: str
    bytes: int
    url: str = ""
    """URL from which ``trb fetch`` gets the file if it is not in git; else empty."""

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> FileRecord:
        return cls(
            sha256=str(document["sha256"]), bytes=int(document["bytes"]), url=str(document.get("url", ""))
        )

    def to_json(self) -> dict[str, Any]:
        stated = {"sha256": self.sha256, "bytes": self.bytes}
        return {**stated, "url": self.url} if self.url else stated


@dataclass(frozen=True, kw_only=True)
class HubModel:
    """The commit of a model on a Hub of Hugging Face, and the files of it that a build read."""

    model: str
    """``ORG/NAME``."""
    commit: str
    file: str
    """The ONNX file, or the weights that were converted, by its path in the repository."""
    license: str = ""
    """Licence that the model card states; empty without one."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Hex sha256 of each file by its path in the repository."""

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> HubModel:
        return cls(
            model=str(document["model"]),
            commit=str(document["commit"]),
            file=str(document["file"]),
            license=str(document.get("license", "")),
            files={str(path): str(sha) for path, sha in document.get("files", {}).items()},
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "commit": self.commit,
            "file": self.file,
            **({"license": self.license} if self.license else {}),
            "files": dict(sorted(self.files.items())),
        }


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """How ``trb convert`` made the ONNX file from PyTorch weights."""

    converter: str
    """``optimum`` or ``torch.onnx``."""
    task: str
    """The exporter's name of the task."""
    tools: Mapping[str, str] = field(default_factory=dict)
    """Versions of torch, transformers and the exporter."""
    weights: Mapping[str, str] = field(default_factory=dict)
    """Hex sha256 of each file of weights, by its name."""

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Conversion:
        return cls(
            converter=str(document["converter"]),
            task=str(document["task"]),
            tools={str(name): str(version) for name, version in document["tools"].items()},
            weights={str(name): str(sha) for name, sha in document["weights"].items()},
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "converter": self.converter,
            "task": self.task,
            "tools": dict(sorted(self.tools.items())),
            "weights": dict(sorted(self.weights.items())),
        }


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The origin of a model: --source-run, --dataset-id and --label, its place on a Hub, its conversion."""

    source_run: str = ""
    dataset_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    hub: HubModel | None = None
    conversion: Conversion | None = None

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Origin:
        return cls(
            source_run=str(document.get("source_run", "")),
            dataset_id=str(document.get("dataset_id", "")),
            labels={str(key): str(value) for key, value in document.get("labels", {}).items()},
            hub=HubModel.of_json(document["hub"]) if "hub" in document else None,
            conversion=Conversion.of_json(document["conversion"]) if "conversion" in document else None,
        )

    def to_json(self) -> dict[str, Any]:
        stated = {
            "source_run": self.source_run,
            "dataset_id": self.dataset_id,
            "labels": dict(sorted(self.labels.items())),
            "hub": self.hub.to_json() if self.hub else None,
            "conversion": self.conversion.to_json() if self.conversion else None,
        }
        return {key: value for key, value in stated.items() if value}


@dataclass(frozen=True, kw_only=True)
class VersionEntry:
    """One version of an endpoint."""

    version: int
    models: tuple[str, ...]
    """Model directories, the endpoint first."""
    endpoint: Endpoint
    task: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the task: pooling, activation, labels, padding."""
    shared: tuple[str, ...] = ()
    """Models that other endpoints may also use."""
    cases: str | None = None
    """The file of golden cases, by its path in the repository."""
    triton_release: str = ""
    triton_release_from: str = ""
    """Why this release: ``stated``, ``embedded``, ``image``, ``newest``; empty if an older trb built it."""
    sources: tuple[SourceFile, ...] = ()
    """The user's files, the model first."""
    opset: int | None = None
    ir_version: int | None = None
    tools: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] | None = None
    """The options of the build that differ from their defaults; None if an older trb did not record them."""
    options_digest: str = ""
    provenance: Origin = field(default_factory=Origin)
    content: str = ""
    """The content digest (``repository/content.py``), hex; empty if an older trb built it."""
    edits: Mapping[str, Edit] = field(default_factory=dict)
    """Accepted hand edits, by the file's path while the version is served."""

    @classmethod
    def of_json(cls, name: str, document: Mapping[str, Any]) -> VersionEntry:
        """Raises one of ``files.DAMAGED`` for a damaged entry."""
        models = _listed(document, "models")
        if not models:
            raise ValueError("'models' is empty")
        return cls(
            version=int(document["version"]),
            models=tuple(map(str, models)),
            endpoint=Endpoint.of_manifest(name, document),
            task=str(document.get("task", "")),
            facts=_facts(document.get("facts", {})),
            shared=tuple(map(str, _listed(document, "shared"))),
            cases=_optional(document, "cases", str),
            triton_release=str(document.get("triton_release", "")),
            triton_release_from=str(document.get("triton_release_from", "")),
            sources=tuple(map(SourceFile.of_json, _listed(document, "sources"))),
            opset=_optional(document, "opset", int),
            ir_version=_optional(document, "ir_version", int),
            tools={key: str(value) for key, value in document.get("tools", {}).items()},
            options=_optional(document, "options", dict),
            options_digest=str(document.get("options_digest", "")),
            provenance=Origin.of_json(document.get("provenance", {})),
            content=str(document.get("content", "")),
            edits={str(path): Edit.of_json(edit) for path, edit in document.get("edits", {}).items()},
        )

    def to_json(self) -> dict[str, Any]:
        provenance = self.provenance.to_json()
        edits = {path: edit.to_json() for path, edit in sorted(self.edits.items())}
        return {
            "task": self.task,
            "facts": dict(self.facts),
            "models": list(self.models),
            **({"shared": list(self.shared)} if self.shared else {}),
            "version": self.version,
            "cases": self.cases,
            **self.endpoint.to_manifest(),
            "triton_release": self.triton_release,
            **({"triton_release_from": self.triton_release_from} if self.triton_release_from else {}),
            "sources": [source.to_json() for source in self.sources],
            **({"opset": self.opset} if self.opset is not None else {}),
            **({"ir_version": self.ir_version} if self.ir_version is not None else {}),
            "tools": dict(self.tools),
            **({"options": dict(self.options)} if self.options is not None else {}),
            **({"options_digest": self.options_digest} if self.options_digest else {}),
            **({"provenance": provenance} if provenance else {}),
            **({"content": self.content} if self.content else {}),
            **({"edits": edits} if edits else {}),
        }


@dataclass(frozen=True, kw_only=True)
class EndpointEntry:
    """An endpoint with all its versions."""

    served: VersionEntry
    previous: int | None = None
    """The version that was served before, to which ``trb rollback`` goes back."""
    others: Mapping[int, VersionEntry] = field(default_factory=dict)
    """The stored versions that are not served, by number."""

    @property
    def versions(self) -> Mapping[int, VersionEntry]:
        """Every version by its number."""
        return {self.served.version: self.served, **self.others}

    @property
    def models(self) -> tuple[str, ...]:
        """The model directories of the served version, the endpoint first."""
        return self.served.models

    @classmethod
    def of_json(cls, name: str, document: Mapping[str, Any]) -> EndpointEntry:
        """Raises one of ``files.DAMAGED`` for a damaged entry."""
        return cls(
            served=VersionEntry.of_json(name, document),
            previous=_optional(document, "previous", int),
            others={
                int(version): VersionEntry.of_json(name, entry)
                for version, entry in document.get("versions", {}).items()
            },
        )

    def to_json(self) -> dict[str, Any]:
        others = {str(version): entry.to_json() for version, entry in sorted(self.others.items())}
        return {
            **self.served.to_json(),
            **({"previous": self.previous} if self.previous is not None else {}),
            **({"versions": others} if others else {}),
        }


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All endpoints that ``trb`` built in a repository, and all files that it wrote there, by path."""

    endpoints: Mapping[str, EndpointEntry] = field(default_factory=dict)
    files: Mapping[str, FileRecord] = field(default_factory=dict)
    generator: Mapping[str, str] = field(default_factory=lambda: GENERATOR)

    @property
    def releases(self) -> tuple[str, ...]:
        """The releases that the served versions were written for, oldest first."""
        served = (entry.served.triton_release for entry in self.endpoints.values())
        return tuple(sorted({release for release in served if release}))

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Manifest:
        """Raises one of ``files.DAMAGED`` for a damaged document."""
        return cls(
            endpoints={
                name: EndpointEntry.of_json(name, entry) for name, entry in document["endpoints"].items()
            },
            files={path: FileRecord.of_json(record) for path, record in document["files"].items()},
            generator={key: str(value) for key, value in document.get("generator", {}).items()},
        )

    def to_text(self) -> str:
        """The text of manifest.json: equal content gives equal text."""
        document = {
            "schema": 1,
            "generator": dict(self.generator),
            "endpoints": {name: entry.to_json() for name, entry in sorted(self.endpoints.items())},
            "files": {path: record.to_json() for path, record in sorted(self.files.items())},
        }
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _facts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a task; the labels are texts."""
    labels = {"labels": list(map(str, _listed(document, "labels")))} if "labels" in document else {}
    return {**document, **labels}


def _listed(document: Mapping[str, Any], key: str) -> list[Any]:
    value = document.get(key, [])
    if not isinstance(value, list):
        raise TypeError(f"'{key}' is not a list")
    return value


def _optional(document: Mapping[str, Any], key: str, kind: type[T]) -> T | None:
    value = document.get(key)
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"'{key}' is {value!r:.40}")
    return value


def read(folder: Path) -> Manifest | None:
    """The manifest of a repository; None if trb did not write one. Raises ``TrbError`` if it is damaged."""
    file = folder / MANIFEST
    try:
        if not file.is_file():
            return None
        document = files.load_json(files.read(file))
    except (OSError, ValueError) as error:
        raise _damaged(file, f"cannot be read as JSON: {error}") from None
    if not is_ours(document):
        return None
    try:
        manifest = Manifest.of_json(document)
    except files.DAMAGED as error:
        raise _damaged(file, f"is a damaged manifest of trb: {type(error).__name__} {error}") from None
    _check_paths(file, manifest)
    return manifest


def is_ours(document: object) -> bool:
    """Whether trb wrote the document: other tools write a manifest.json, too."""
    return isinstance(document, dict) and {"endpoints", "files"} <= document.keys()


def _check_paths(file: Path, manifest: Manifest) -> None:
    """``TrbError`` for a path that leads out of the repository: commands write and remove what is listed."""
    versions = [version for entry in manifest.endpoints.values() for version in entry.versions.values()]
    cases = [version.cases for version in versions if version.cases]
    models = [model for version in versions for model in (*version.models, *version.shared)]
    for path in (*manifest.files, *cases, *models):
        transfer.check_inside(path, str(file))
        if wrong := [part for part in path.split("/") if len(os.fsencode(part)) > LONGEST_NAME]:
            raise _damaged(file, f"is a damaged manifest of trb: no file can be called '{wrong[0][:40]}…'")
    if wrong := [model for model in models if "/" in model]:
        raise _damaged(file, f"is a damaged manifest of trb: '{wrong[0]}' is not the name of a model")
    if wrong := [path for path in cases if "/" not in path]:
        raise _damaged(file, f"is a damaged manifest of trb: '{wrong[0]}' is not in a model's folder")


def write(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest, whole or not at all."""
    files.write(folder / MANIFEST, manifest.to_text().encode())


def _damaged(file: Path, message: str) -> TrbError:
    return TrbError(
        Code.REPOSITORY_UNREADABLE,
        message,
        where=str(file),
        remedy="restore it (git checkout) or build the repository again",
    )
