"""The client's view of an endpoint, read from a folder, a version, or a git revision."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.write import versions
from triton_repo_builder.repository import CONFIG, SHARED, Model, Repository
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.interface import Endpoint
from triton_repo_builder.repository.provenance import Facts
from triton_repo_builder.ship.vcs import tree
from triton_repo_builder.ship.vcs.git import Git

SMALL = 1_000_000
"""Bytes up to which a file of a revision is read: no weights."""
_READ = re.compile(r"(\.pbtxt|\.json|\.txt|/\.gitkeep)$")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One endpoint at one version."""

    endpoint: Endpoint
    version: int
    facts: Mapping[str, Any]
    """Settings of the task: pooling, labels."""
    origin: Facts
    configs: Mapping[str, ModelConfig]
    """The configurations of the endpoint and its steps, by their role: the name without the endpoint's."""
    cases: Mapping[str, Any]
    """Golden cases by name, as in smoke.json."""
    release: str = ""


@contextlib.contextmanager
def read(spec: str, repo: Path) -> Iterator[dict[str, Snapshot]]:
    """The endpoints of ``spec``: a folder, ``NAME@VERSION`` of ``repo``, or ``REVISION:PATH`` of git."""
    if Path(spec).is_dir():
        yield of_repository(repository.read(Path(spec)), spec)
    elif match := re.fullmatch(r"([A-Za-z0-9_.-]+)@(\d+)", spec):
        yield {match[1]: of_version(repository.read(repo), match[1], int(match[2]))}
    elif ":" in spec:
        with tempfile.TemporaryDirectory(prefix="trb-diff-") as scratch:
            revision, _, path = spec.partition(":")
            folder = tree.find(Git(folder=Path.cwd()), revision, path)
            tree.small_files(folder, Path(scratch), lambda blob: describes(blob.path, blob.size))
            try:
                snapshots = of_repository(repository.read(Path(scratch)), spec)
            except TrbError as error:
                error.where = error.where.replace(scratch, spec.rstrip("/"))
                raise
            yield snapshots
    else:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            "no such model repository",
            where=spec,
            remedy="name a folder, a version (sentiment@2), or a revision and path (HEAD~1:model_repository)",
        )


def of_repository(repo: Repository, where: str = "") -> dict[str, Snapshot]:
    """Every endpoint, at the version that is served. Raises ``TrbError`` REPOSITORY_UNREADABLE."""
    if repo.manifest is None:
        if not any(model.stated for model in repo.models):
            raise TrbError(
                Code.REPOSITORY_UNREADABLE,
                "holds no model",
                where=where or str(repo.path),
                remedy="name a folder of model directories, each with config.pbtxt and a version such as 1/",
            )
        return {model.name: _of_config(repo, model.name) for model in repo.endpoints if model.stated}
    return {
        name: of_version(repo, name, entry.served.version) for name, entry in repo.manifest.endpoints.items()
    }


def of_version(repo: Repository, name: str, version: int) -> Snapshot:
    """One endpoint at one version. Raises ``TrbError`` NOT_FOUND."""
    recorded = repo.manifest.endpoints.get(name) if repo.manifest else None
    entries = recorded.versions if recorded else {}
    if recorded is None or version not in entries:
        names = ", ".join(f"{name}@{number}" for number in sorted(entries))
        raise TrbError(
            Code.NOT_FOUND,
            f"there is no version {version} of '{name}'",
            where=str(repo.path),
            remedy=f"there are: {names}" if names else "'trb provenance' lists what there is",
        )
    entry = entries[version]
    configs: dict[str, ModelConfig] = {}
    for model in entry.models:
        kept = repo.path / model / str(version) / SHARED / CONFIG
        is_kept = version != recorded.served.version and kept.is_file()
        configs[model] = versions.read_config(kept) if is_kept else _config(repo.model(model))
    return Snapshot(
        endpoint=entry.endpoint,
        version=version,
        facts=entry.facts,
        origin=Facts.of_entry(name, entry),
        configs={_role(model, name): config for model, config in configs.items()},
        cases=_cases(repo.path, entry.cases),
        release=entry.triton_release,
    )


def _role(model: str, endpoint: str) -> str:
    """A model's role in an endpoint, from its name: ``tokenizer``; empty for the endpoint itself."""
    return model.removeprefix(endpoint).strip("_")


def _config(model: Model | None) -> ModelConfig:
    if model is not None and model.error is not None:
        raise versions.unreadable(model.path / CONFIG, model.error)
    return model.config if model else ModelConfig()


def _cases(root: Path, file: str | None) -> dict[str, Any]:
    try:
        return {
            case["name"]: case
            for case in files.load_json(files.read(root / (file or "")))["cases"]
            if isinstance(case["name"], str)
        }
    except (OSError, *files.DAMAGED):
        return {}  # trb smoke and trb check report what is wrong with them


def _of_config(repo: Repository, name: str) -> Snapshot:
    """Snapshot of a hand-made repository, from its config.pbtxt."""
    model = repo.model(name)
    assert model is not None
    steps = [other for other in repo.models if other.name in model.steps]
    return Snapshot(
        endpoint=Endpoint.of_config(name, _config(model)),
        version=max(model.versions, default=0),
        facts={},
        origin=Facts.of_config(name, model.config),
        configs={_role(each.name, name): _config(each) for each in (model, *steps)},
        cases={},
    )


def describes(path: str, size: int) -> bool:
    """Whether a file of a revision is read here: those that describe the models, no weights."""
    return bool(_READ.search(path)) and "/vendor/" not in path and size <= SMALL
