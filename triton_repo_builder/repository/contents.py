"""The endpoints of a repository, with the tensors and versions that a client needs to know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder.repository.config import CONFIG
from triton_repo_builder.repository.interface import Endpoint
from triton_repo_builder.repository.manifest import read as read_manifest
from triton_repo_builder.repository.model import Repository


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One endpoint of a repository."""

    endpoint: Endpoint
    """Without inputs or outputs if config.pbtxt leaves them to the server."""
    task: str = ""
    """Empty for an endpoint that ``trb`` did not build."""
    served: tuple[int, ...]
    versions: tuple[int, ...]
    triton_release: str = ""
    models: tuple[str, ...]
    """Model directories, the endpoint first."""

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.endpoint.name,
            "task": self.task or None,
            "served": list(self.served),
            "versions": list(self.versions),
            "triton_release": self.triton_release or None,
            "models": list(self.models),
            **self.endpoint.to_manifest(),
        }


def is_repository(folder: Path) -> bool:
    """Whether a folder is a model repository, and not a folder with a model to build from."""
    if not folder.is_dir() or any(folder.glob("*.onnx")):
        return False
    return any(folder.glob(f"*/{CONFIG}")) or read_manifest(folder) is not None


def entries(repository: Repository) -> tuple[Entry, ...]:
    """Endpoints by name: of manifest.json, and models that ``trb`` did not build, of their config.pbtxt."""
    return tuple(
        sorted((*_recorded(repository), *_others(repository)), key=lambda entry: entry.endpoint.name)
    )


def _recorded(repository: Repository) -> Iterator[Entry]:
    for each in repository.manifest.endpoints.values() if repository.manifest else ():
        served = each.served
        yield Entry(
            endpoint=served.endpoint,
            task=served.task,
            served=(served.version,),
            versions=tuple(sorted(each.versions)),
            triton_release=served.triton_release,
            models=served.models,
        )


def _others(repository: Repository) -> Iterator[Entry]:
    recorded = repository.manifest.endpoints.values() if repository.manifest else ()
    built = {model for each in recorded for model in each.models}
    for model in repository.endpoints:
        if model.stated and model.name not in built:
            yield Entry(
                endpoint=Endpoint.of_config(model.name, model.config),
                served=model.selected,
                versions=model.versions,
                models=(model.name, *dict.fromkeys(model.steps)),
            )
