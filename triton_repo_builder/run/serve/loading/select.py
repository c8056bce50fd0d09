"""Choose the models to load, and detect certain failures before a server is started."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import CONFIG, Model, Repository, composition
from triton_repo_builder.repository.model import LARGEST_VERSION
from triton_repo_builder.run.serve.engine import Failure

NOTHING = ("none",)
"""Requested: no model yet, for a server whose models are loaded later."""


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Models to load, each with its steps."""

    load: tuple[str, ...]
    endpoints: tuple[str, ...]
    """Models that clients call."""
    members: tuple[str, ...]
    """All models that will be loaded, steps included."""
    not_models: tuple[str, ...]
    """Folders without a model; Triton would report each as a broken model."""
    failures: tuple[Failure, ...]
    """Models that would hang or kill the server; ``load`` has neither them nor ensembles that need them."""


def choose(repository: Repository, requested: tuple[str, ...] = ()) -> Targets:
    """Choose the models to load. Raises ``TrbError`` without any model, or without a requested one."""
    models = {model.name: model for model in repository.models if model.stated}
    not_models = tuple(model.name for model in repository.models if model.name not in models)
    if not models:
        raise _empty(repository)
    if requested == NOTHING and NOTHING[0] not in models:
        return Targets(load=(), endpoints=(), members=(), not_models=not_models, failures=())
    _check_requested(repository, models, requested)

    def reach(*names: str) -> tuple[str, ...]:
        return tuple(name for name in composition.members(names, repository.steps_of) if name in models)

    tops = requested or composition.outermost(models, repository.steps_of)
    # Ensembles that form a circle have no top: load one directly, for the server's own error.
    rest = () if requested else tuple(name for name in models if name not in reach(*tops))
    members = reach(*tops, *rest)
    failures = tuple(fail for name in members for fail in [_preflight(models[name])] if fail)
    failed = {fail.model for fail in failures}
    load = tuple(top for top in dict.fromkeys((*tops, *rest)) if not failed & set(reach(top)))
    return Targets(load=load, endpoints=tops, members=members, not_models=not_models, failures=failures)


def _empty(repository: Repository) -> TrbError:
    if (repository.path / CONFIG).is_file():
        path = repository.path.resolve()
        remedy = (
            f"this is one model; name the folder that holds it: trb serve {path.parent} --load {path.name}"
        )
    else:
        remedy = "name a folder of model directories, each with config.pbtxt and a version such as 1/"
    return TrbError(
        Code.REPOSITORY_UNREADABLE, "contains no model", where=str(repository.path), remedy=remedy
    )


def _check_requested(repository: Repository, models: dict[str, Model], requested: tuple[str, ...]) -> None:
    for name in requested:
        if name not in models:
            near = get_close_matches(name, models, 1)
            raise TrbError(
                Code.NOT_FOUND,
                f"no model '{name}'",
                where=str(repository.path),
                remedy=f"did you mean '{near[0]}'?" if near else f"it has: {', '.join(models)}",
            )


def _preflight(model: Model) -> Failure | None:
    over = [version for version in model.versions if version > LARGEST_VERSION]
    if over:
        return Failure(
            model=model.name,
            cause=f"the version directory {over[0]} is too large a number and kills the server",
        )
    if model.backend != "python" or model.error:
        return None
    name = model.config.default_model_filename or "model.py"
    for version in model.selected:
        file = model.path / str(version) / name
        if not file.is_file():
            return Failure(model=model.name, cause=f"{file} is missing")
    return None
