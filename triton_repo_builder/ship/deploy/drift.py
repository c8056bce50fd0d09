"""How a running server and its folder differ from a revision, endpoint by endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from triton_repo_builder.repository import as_loaded
from triton_repo_builder.repository.pbtxt import PbtxtError
from triton_repo_builder.run.client import HttpClient, NoAnswer, RequestFailed, admin_key, ready_versions
from triton_repo_builder.run.serve.loading.load_unload import Server
from triton_repo_builder.ship.deploy.stage import RepositoryState


class Action(Enum):
    """The change that brings an endpoint to the state of the revision."""

    LOAD = "load"
    PROMOTE = "promote"
    UNLOAD = "unload"
    NOTHING = "nothing"


@dataclass(frozen=True, kw_only=True)
class Drift:
    """One endpoint, or one model that the server has loaded and the folder no longer has."""

    endpoint: str
    action: Action
    old: int | None = None
    """The version that the folder serves; None if it has none."""
    new: int | None = None
    """The version that the revision serves; None if it has none."""
    why: str = ""

    def __bool__(self) -> bool:
        return self.action is not Action.NOTHING

    def __str__(self) -> str:
        numbers = {
            Action.PROMOTE: f" {self.old} → {self.new}",
            Action.LOAD: f" {self.new}",
            Action.UNLOAD: f" {self.old}" if self.old else "",
            Action.NOTHING: "",
        }[self.action]
        return f"{self.action.value}{numbers}" + (f" ({self.why})" if self.why else "")

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        return {**asdict(self), "action": self.action.value}


def compare(
    current: RepositoryState, target: RepositoryState, root: Path, http: HttpClient, server: Server
) -> tuple[Drift, ...]:
    """Every endpoint of the folder and of the revision; what has to go comes last.

    Raises ``TrbError`` ADMIN_KEY, ``NoAnswer``.
    """
    try:
        loaded = ready_versions(http.index())
    except NoAnswer:
        raise
    except RequestFailed as error:  # it keeps its list to itself
        admin_key.refuse_other(http.url, error.message)
        loaded = {}
    drifts = [_endpoint(current, target, name, loaded, http) for name in sorted(target.manifest.endpoints)]
    drifts = [drift or _brought(drift, target, server) for drift in drifts]
    for name, entry in sorted(current.manifest.endpoints.items()):
        if name not in target.manifest.endpoints:
            drifts.append(Drift(endpoint=name, action=Action.UNLOAD, old=entry.served.version))
    for model in sorted(loaded):
        if not (root / model).is_dir():
            drifts.append(Drift(endpoint=model, action=Action.UNLOAD, why="loaded, but its files are gone"))
    return tuple(drifts)


def _endpoint(
    current: RepositoryState,
    target: RepositoryState,
    name: str,
    loaded: Mapping[str, tuple[int, ...]],
    http: HttpClient,
) -> Drift:
    new = target.manifest.endpoints[name].served.version
    before = current.manifest.endpoints.get(name)
    if before is None:
        return Drift(endpoint=name, action=Action.LOAD, new=new, why="new")
    old = before.served.version
    if old != new:
        return Drift(endpoint=name, action=Action.PROMOTE, old=old, new=new)
    models = {*before.models, *target.manifest.endpoints[name].models}
    if other := sorted(model for model in models if not current.same_files(target, model)):
        why = f"other content: {', '.join(other)}"
        return Drift(endpoint=name, action=Action.PROMOTE, old=old, new=new, why=why)
    why = unserved(target, name, loaded, http)
    return Drift(endpoint=name, action=Action.LOAD if why else Action.NOTHING, old=old, new=new, why=why)


def _brought(drift: Drift, target: RepositoryState, server: Server) -> Drift:
    """A load for an endpoint of which a model was loaded from files that came with the request."""
    for model in target.manifest.endpoints[drift.endpoint].models:
        if server.brought(model):
            why = f"{model} runs files that came with a request to load it"
            return replace(drift, action=Action.LOAD, why=why)
    return drift


def unserved(
    target: RepositoryState, name: str, loaded: Mapping[str, tuple[int, ...]], http: HttpClient
) -> str:
    """How the server does not serve an endpoint as the files of the revision say; empty if it does."""
    for model, numbers in target.loaded(name).items():
        if loaded.get(model, ()) != numbers:
            versions = ", ".join(map(str, loaded.get(model, ()))) or "none"
            return f"the server has version {versions} of {model}"
        try:
            version = target.manifest.endpoints[name].served.version
            other = as_loaded.differences(target.config(model), http.config(model), version)
        except (RequestFailed, PbtxtError) as error:
            return f"the server does not describe {model}: {error}"
        if other:
            return f"{model} as loaded: {next(iter(other))}"
    return ""
