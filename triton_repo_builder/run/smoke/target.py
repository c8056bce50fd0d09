"""Endpoints to check, and the repository's facts about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import CONFIG, MANIFEST, Model, Repository, cases, composition
from triton_repo_builder.repository.interface import Endpoint
from triton_repo_builder.repository.manifest import VersionEntry
from triton_repo_builder.run.client import HttpClient

NOWHERE = ""
RESTORE = "restore the file (git checkout), build again, or leave the cases out with --no-cases"


@dataclass(frozen=True, kw_only=True)
class StatedEndpoint:
    """One endpoint as the repository states it."""

    name: str
    source: str
    """Source of the inputs and outputs: MANIFEST, CONFIG or NOWHERE (only the server has them)."""
    stated: Endpoint | None = None
    """None if only the server has it; without inputs or outputs if the source leaves them to the server."""
    golden: cases.CaseFile | None = None
    why: str = ""
    """Why there are no golden cases."""

    @property
    def states_batch_size(self) -> bool:
        """config.pbtxt does not if it has 0: that and none at all read alike, and the server completes it."""
        return self.stated is not None and (self.source == MANIFEST or self.stated.max_batch_size > 0)


def targets(
    repository: Repository | None, http: HttpClient, names: Sequence[str], *, golden: bool = True
) -> tuple[StatedEndpoint, ...]:
    """Endpoints of the repository, or of the server if there is none; only ``names`` if given.

    Golden cases are not even read unless ``golden``.
    """
    endpoints = _on_server(http) if repository is None else _in_repository(repository, golden)
    all_names = [target.name for target in endpoints]
    missing = [name for name in names if name not in all_names]
    if missing or not endpoints:
        where = str(repository.path) if repository else http.url
        message = f"has no endpoint {', '.join(missing)}" if missing else "has no endpoint to check"
        remedy = (
            f"its endpoints: {', '.join(all_names)}" if all_names else "name another repository or server"
        )
        raise TrbError(Code.USAGE, message, where=where, remedy=remedy)
    return tuple(target for target in endpoints if not names or target.name in names)


def _in_repository(repository: Repository, golden: bool) -> tuple[StatedEndpoint, ...]:
    if repository.manifest is None:
        return tuple(_from_config(model) for model in repository.endpoints)
    entries = sorted(repository.manifest.endpoints.items())
    return tuple(_from_manifest(repository, entry.served, golden) for _, entry in entries)


def _from_manifest(repository: Repository, entry: VersionEntry, golden: bool) -> StatedEndpoint:
    name = entry.endpoint.name
    return StatedEndpoint(
        name=name,
        source=MANIFEST,
        stated=entry.endpoint,
        golden=_golden(repository, entry.cases) if entry.cases and golden else None,
        why="" if entry.cases else f"the manifest names no golden cases for {name}",
    )


def _golden(repository: Repository, file: str) -> cases.CaseFile:
    path = repository.path / file
    try:
        golden = cases.load(path)
    except OSError as error:
        raise _unreadable(path, f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise _unreadable(path, f"is not a file of golden cases: {error}") from None
    if not golden.cases:
        raise _unreadable(path, "holds no golden case")
    return golden


def _unreadable(path: Path, message: str) -> TrbError:
    return TrbError(Code.REPOSITORY_UNREADABLE, message, where=str(path), remedy=RESTORE)


def _from_config(model: Model) -> StatedEndpoint:
    return StatedEndpoint(
        name=model.name,
        source=CONFIG,
        stated=Endpoint.of_config(model.name, model.config),
        why="the repository has no manifest.json (it was not built by trb), so no recorded answers",
    )


def _on_server(http: HttpClient) -> tuple[StatedEndpoint, ...]:
    names = sorted({entry.name for entry in http.index() if entry.ready})
    return tuple(
        StatedEndpoint(
            name=name,
            source=NOWHERE,
            why="no local repository was given, so there are no recorded answers",
        )
        for name in composition.outermost(names, http.steps_of)
    )
