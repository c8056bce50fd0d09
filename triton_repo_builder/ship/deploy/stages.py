"""The states through which a served repository goes while an endpoint changes, each whole and servable.

A step of an ensemble that changes alone, with the same tensors, is loaded in place: Triton answers with the
old until the new is ready, and no answer is of two versions. Several: ``side_by_side.py``.
"""

from __future__ import annotations

from dataclasses import replace

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.write import versions
from triton_repo_builder.produce.write.install import Piece, below
from triton_repo_builder.repository import CONFIG
from triton_repo_builder.ship.deploy import side_by_side
from triton_repo_builder.ship.deploy.stage import Change, RepositoryState, Stage

_TENSORS = ("input", "output", "max_batch_size", "batch_input", "batch_output", "model_transaction_policy")


def stand_in(stage: Stage, model: str, number: int, failed: int) -> Stage:
    """A stage with the content of a version that loads also under the number of one that failed."""
    config = f"{model}/{CONFIG}"
    prefix = f"{model}/{number}/"
    loading = versions.serving({config: stage.state[config].bytes}, sorted((number, failed)))
    twin = {
        f"{model}/{failed}/{path.removeprefix(prefix)}": piece
        for path, piece in stage.state.items()
        if path.startswith(prefix)
    }
    state = {path: piece for path, piece in stage.state.items() if not path.startswith(f"{model}/{failed}/")}
    return replace(stage, state={**state, **twin, config: Piece.of(loading[config])})


def first(change: Change) -> Stage:
    """The state that is there."""
    entry = change.current.manifest.endpoints.get(change.name)
    return Stage(
        about="as before",
        state=below(change.current.state, change.models),
        entry=entry,
        expected=change.current.loaded(change.name) if entry else {},
    )


def loading(change: Change) -> list[Stage]:
    """A new endpoint, or one that the server does not have as the folder does."""
    current, target, name = change.current, change.target, change.name
    steps = tuple(
        model
        for model in target.manifest.endpoints[name].models[1:]
        if name in current.manifest.endpoints and current.same_files(target, model)
    )
    return [change.final("loaded", loads=(*steps, name))]


def removing(change: Change) -> list[Stage]:
    """An endpoint goes: unloaded first, then its files."""
    name = change.name
    return [
        Stage(
            about=f"{name} is unloaded",
            state={},
            entry=None,
            expected={},
            unloads=(name, *_steps_there(change)),
        )
    ]


def changing(change: Change, *, interrupt: bool) -> list[Stage]:
    """The states from the served content of an endpoint to the revision's. Raises ``TrbError`` APPLY_FAILED.

    With ``interrupt`` what cannot be loaded side by side is unloaded first; else that raises.
    """
    if not change.changed or (len(change.changed) == 1 and _in_place(change, change.changed[0])):
        return [change.final("loaded in place", loads=(*change.touched, change.name))]
    unlike = {model: field for model in change.changed if (field := change.unlike(model))}
    if not unlike:
        return side_by_side.states(change)
    if interrupt:
        return [_interrupted(change)]
    model, field = next(iter(unlike.items()))
    raise TrbError(
        Code.APPLY_FAILED,
        f"its step {model} has another {field}: old and new cannot be loaded at once",
        where=change.name,
        remedy="build it under another --name and switch clients; or apply with --interrupt, which "
        "refuses requests to this endpoint until the new one is loaded",
    )


def _in_place(change: Change, model: str) -> bool:
    """Whether one changed step can be loaded in place: what is around it fits the old and the new one."""
    old, new = change.old, change.new
    routes, others = (_routes(state, change.name) for state in (change.current, change.target))
    if old.keys() != new.keys() or old[model] != new[model] or routes != others:
        return False
    before, after = change.current.config(model), change.target.config(model)
    return all(before.raw.get(field) == after.raw.get(field) for field in _TENSORS)


def _routes(state: RepositoryState, name: str) -> list[object]:
    return [replace(step, model_version=-1) for step in state.config(name).steps]


def _interrupted(change: Change) -> Stage:
    name = change.name
    return replace(
        change.final("loaded anew", loads=(name,)),
        about=f"{name}: unloaded and loaded anew; requests are refused meanwhile",
        unloads=(name, *_steps_there(change)),
    )


def _steps_there(change: Change) -> tuple[str, ...]:
    """The endpoint's steps before the change, of the models that change."""
    steps = change.current.manifest.endpoints[change.name].models[1:]
    return tuple(model for model in steps if model in change.models)
