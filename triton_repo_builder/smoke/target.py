"""Which endpoints to check, and what the repository states of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder.client import HttpClient, RequestFailed, Tensor
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.golden import cases
from triton_repo_builder.repository import Model, Repository
from triton_repo_builder.repository.interface import Endpoint

MANIFEST = "manifest.json"
CONFIG = "config.pbtxt"
NOWHERE = ""
RESTORE = "restore the file (git checkout), build again, or leave the cases out with --no-cases"


@dataclass(frozen=True, kw_only=True)
class Target:
    """One endpoint as the repository states it."""

    name: str
    source: str
    """Where inputs and outputs are stated: MANIFEST, CONFIG or NOWHERE (only the server knows)."""
    inputs: tuple[Tensor, ...] | None
    """None where the source does not state them."""
    outputs: tuple[Tensor, ...] | None
    max_batch_size: int | None
    golden: cases.CaseFile | None
    why: str = ""
    """Why there are no golden cases."""


def targets(
    repository: Repository | None, http: HttpClient, names: Sequence[str], *, golden: bool = True
) -> tuple[Target, ...]:
    """Endpoints of the repository, or of the server where there is none; only ``names`` if given.

    Golden cases are not even read unless ``golden``.
    """
    found = _on_server(http) if repository is None else _in_repository(repository, golden)
    known = [target.name for target in found]
    missing = [name for name in names if name not in known]
    if missing or not found:
        where = str(repository.path) if repository else http.url
        message = f"has no endpoint {', '.join(missing)}" if missing else "has no endpoint to check"
        remedy = f"its endpoints: {', '.join(known)}" if known else "name another repository or server"
        raise TrbError(Code.USAGE, message, where=where, remedy=remedy)
    return tuple(target for target in found if not names or target.name in names)


def _in_repository(repository: Repository, golden: bool) -> tuple[Target, ...]:
    if repository.manifest is None:
        return tuple(_from_config(model) for model in repository.endpoints)
    entries = repository.manifest["endpoints"]
    return tuple(_from_manifest(repository, name, entry, golden) for name, entry in sorted(entries.items()))


def _from_manifest(repository: Repository, name: str, entry: Mapping[str, Any], wanted: bool) -> Target:
    def tensors(key: str) -> tuple[Tensor, ...]:
        return tuple(
            Tensor(name=item["name"], datatype=item["datatype"], shape=tuple(item["shape"]))
            for item in entry[key]
        )

    try:
        file = entry.get("cases")
        golden = _golden(repository, file) if file and wanted else None
        return Target(
            name=name,
            source=MANIFEST,
            inputs=tensors("inputs"),
            outputs=tensors("outputs"),
            max_batch_size=int(entry["max_batch_size"]),
            golden=golden,
            why="" if file else f"the manifest names no golden cases for {name}",
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            f"endpoint {name} cannot be read: {type(error).__name__} {error}",
            where=str(repository.path / MANIFEST),
            remedy="restore it (git checkout) or build the repository again",
        ) from None


def _golden(repository: Repository, file: str) -> cases.CaseFile:
    path = repository.path / file
    try:
        golden = cases.load(path)
    except OSError as error:
        raise _unreadable(path, f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise _unreadable(path, f"is no file of golden cases: {error}") from None
    if not golden.cases:
        raise _unreadable(path, "holds no golden case")
    return golden


def _unreadable(path: Path, message: str) -> TrbError:
    return TrbError(Code.REPOSITORY_UNREADABLE, message, where=str(path), remedy=RESTORE)


def _from_config(model: Model) -> Target:
    def tensors(key: str) -> tuple[Tensor, ...] | None:
        stated = getattr(Endpoint.of_config(model.name, model.config), key)
        return tuple(Tensor(name=t.name, datatype=t.datatype, shape=t.shape) for t in stated) or None

    return Target(
        name=model.name,
        source=CONFIG,
        inputs=tensors("inputs"),
        outputs=tensors("outputs"),
        # An explicit 0 and none at all read alike; the server completes the latter.
        max_batch_size=model.config.max_batch_size or None,
        golden=None,
        why="the repository has no manifest.json (it was not built by trb), so no recorded answers",
    )


def _on_server(http: HttpClient) -> tuple[Target, ...]:
    names = sorted({entry.name for entry in http.index() if entry.state == "READY"})
    inner: set[str] = set()
    for name in names:
        try:
            inner.update(steps(http.config(name)))
        except RequestFailed:
            # A server may keep configurations to itself; then steps are checked as endpoints, too.
            continue
    return tuple(
        Target(
            name=name,
            source=NOWHERE,
            inputs=None,
            outputs=None,
            max_batch_size=None,
            golden=None,
            why="no local repository was given, so there are no recorded answers",
        )
        for name in names
        if name not in inner
    )


def steps(config: Mapping[str, Any]) -> list[str]:
    """Names of the models that an ensemble's configuration calls, once for each call."""
    scheduling = config.get("ensemble_scheduling") or {}
    return [str(step["model_name"]) for step in scheduling.get("step", ())]
