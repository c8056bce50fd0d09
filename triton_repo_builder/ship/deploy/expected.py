"""Endpoints as a revision states them: versions, configurations, and the digest of every file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import some
from triton_repo_builder.repository import (
    CONFIG,
    MANIFEST,
    VERSION,
    Model,
    Repository,
    content,
    integrity,
    provenance,
)
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.ship.deploy.revision import Revision

LISTED = 3
"""Files that a reason names."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """One endpoint as a revision states it."""

    name: str
    versions: Mapping[str, tuple[int, ...]]
    """The versions that it serves of each model: the endpoint first, then its steps."""
    configs: Mapping[str, ModelConfig]
    content: str
    digests: Mapping[str, str]
    """Hex sha256 of every file that belongs to it, as in the list of the content digest."""
    altered: str = ""
    """How the revision's own files are not as its manifest says."""


def expected(revision: Revision, names: Sequence[str] = ()) -> tuple[Expected, ...]:
    """The endpoints of a revision, or these. Raises ``TrbError`` NOT_FOUND, REPOSITORY_UNREADABLE."""
    read = repository.read(revision.path)
    all_names = tuple(read.manifest.endpoints) if read.manifest else tuple(m.name for m in read.endpoints)
    if missing := [name for name in names if name not in all_names]:
        raise TrbError(
            Code.NOT_FOUND,
            f"the revision has no endpoint '{missing[0]}'",
            where=revision.name,
            remedy=f"its endpoints: {', '.join(sorted(all_names))}",
        )
    if not all_names:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            "has no models",
            where=revision.name,
            remedy="name a folder of model directories",
        )
    of = _of_manifest if read.manifest else _of_folder
    return tuple(of(revision, read, name) for name in sorted(names or all_names))


def _of_manifest(revision: Revision, read: Repository, name: str) -> Expected:
    assert read.manifest is not None
    entry = read.manifest.endpoints[name].served
    recorded = read.manifest.files
    paths = content.paths(entry, recorded, served=True).values()
    digests = {path: revision.sha256(path) for path in paths}
    changed = [
        path
        for path, sha256 in digests.items()
        if sha256 != recorded[path].sha256 and (sha256 or not recorded[path].url)  # else it is elsewhere
    ]
    altered = f"{listed(changed)} not as manifest.json says" if changed else ""
    listing = content.listing(
        read.path, read.manifest, name, entry.version, lambda path: recorded[path].sha256
    )
    if not altered:
        several = tuple(integrity.disagreements(read.path, read.manifest, only=[(name, entry.version)]))
        altered = some(several, 5)
    models = [read.model(model) for model in entry.models]
    return Expected(
        name=name,
        versions=dict.fromkeys(entry.models, (entry.version,)),
        configs={model.name: _config(model, revision) for model in models if model and model.stated},
        content=entry.content,
        digests=listing,
        altered=altered,
    )


def _of_folder(revision: Revision, read: Repository, name: str) -> Expected:
    """An endpoint that trb did not build: the files of the versions that its policy serves."""
    names = [name]
    for outer in names:
        names += [step for step in read.steps_of(outer) if step not in names]
    models = [model for model in map(read.model, names) if model is not None]
    version, digests = max(models[0].selected, default=0), {}
    for model in models:
        for file in sorted(model.path.rglob("*")):
            path = file.relative_to(read.path).as_posix()
            first = path.split("/")[1]
            is_served = not VERSION.fullmatch(first) or int(first) in model.selected
            if file.is_file() and is_served and "__pycache__" not in file.parts:
                digests[path] = hashed(file, path, name, version)
    return Expected(
        name=name,
        versions={model.name: model.selected for model in models},
        configs={model.name: _config(model, revision) for model in models},
        content=content.stated(models[0].config),
        digests=digests,
        altered=f"{MANIFEST} is missing" if any(provenance.built(model.config) for model in models) else "",
    )


def _config(model: Model, revision: Revision) -> ModelConfig:
    if model.error is not None:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            f"cannot be read: {model.error}",
            where=f"{revision.name}: {model.name}/{CONFIG}",
            remedy="restore the file (git checkout)",
        )
    return model.config


def hashed(file: Path, path: str, name: str, version: int) -> str:
    """Hex sha256 of a served file as it enters the content digest; empty if it cannot be read."""
    try:
        if path.endswith(f"/{CONFIG}"):
            return content.hashed(path, files.read(file), name, version)
        return files.hash_file(file)
    except OSError:
        return ""


def listed(paths: Sequence[str]) -> str:
    return f"{some(paths, LISTED)} {'is' if len(paths) == 1 else 'are'}"
