"""The states through which a served repository goes while an endpoint changes, each whole and servable.

A step of an ensemble that changes alone, with the same tensors, is loaded in place: Triton answers with the
old until the new is ready, and no answer is of two versions. Several: ``side_by_side.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.write import versions
from triton_repo_builder.produce.write.install import Piece, below
from triton_repo_builder.repository import CONFIG, pbtxt
from triton_repo_builder.ship.deploy import side_by_side
from triton_repo_builder.ship.deploy.stage import Side, Stage, final

_TENSORS = ("input", "output", "max_batch_size", "batch_input", "batch_output", "model_transaction_policy")


def posed(stage: Stage, model: str, number: int, failed: int) -> Stage:
    """The same with the content of a version that loads under the number of one that failed."""
    config = f"{model}/{CONFIG}"
    prefix = f"{model}/{number}/"
    text = stage.state[config].bytes.decode("utf-8", "surrogateescape")
    listed = pbtxt.serve_versions(text, sorted((number, failed)))
    twin = {
        f"{model}/{failed}/{path.removeprefix(prefix)}": piece
        for path, piece in stage.state.items()
        if path.startswith(prefix)
    }
    state = {path: piece for path, piece in stage.state.items() if not path.startswith(f"{model}/{failed}/")}
    return replace(
        stage, state={**state, **twin, config: Piece.of(listed.encode("utf-8", "surrogateescape"))}
    )


def first(have: Side, name: str, models: Collection[str]) -> Stage:
    """The state that is there."""
    entry = have.manifest.endpoints.get(name)
    return Stage(
        about="as before",
        state=below(have.state, models),
        entry=entry,
        expected=have.loaded(name) if entry else {},
    )


def loading(have: Side, want: Side, name: str, models: Collection[str]) -> list[Stage]:
    """A new endpoint, or one that the server does not have as the folder does."""
    steps = tuple(
        model
        for model in want.manifest.endpoints[name].models[1:]
        if name in have.manifest.endpoints and have.same_files(want, model)
    )
    return [final(have, want, name, models, loads=(*steps, name), proven=True, about="loaded")]


def removing(have: Side, name: str, models: Collection[str]) -> list[Stage]:
    """An endpoint goes: unloaded first, then its files."""
    gone = tuple(model for model in have.manifest.endpoints[name].models if model in models)
    return [Stage(about=f"{name} is unloaded", state={}, entry=None, expected={}, unloads=(name, *gone[1:]))]


def changing(
    have: Side, want: Side, name: str, models: Collection[str], free: int, *, interrupt: bool
) -> list[Stage]:
    """The states from the served content of an endpoint to the revision's. Raises ``TrbError`` APPLY_FAILED.

    ``free`` is a version number that nothing uses. With ``interrupt`` what cannot be loaded side by side is
    unloaded first; else that raises.
    """
    old, new = have.runs(name), want.runs(name)
    steps = [model for model in new if model != name and model in old]
    changed = {model: _difference(have, want, model, old, new) for model in steps}
    changed = {model: about for model, about in changed.items() if about}
    touched = tuple(
        model for model in new if model != name and not (model in old and have.same_files(want, model))
    )
    if not changed or (len(changed) == 1 and _in_place(have, want, name, next(iter(changed)), old, new)):
        return [final(have, want, name, models, loads=(*touched, name), proven=True, about="loaded in place")]
    unlike = {model: versions.unlike(have.config(model), want.config(model)) for model in changed}
    unlike = {model: field for model, field in unlike.items() if field}
    if unlike:
        if interrupt:
            return [_interrupted(have, want, name, models)]
        model, field = next(iter(unlike.items()))
        raise TrbError(
            Code.APPLY_FAILED,
            f"its step {model} has another {field}: old and new cannot be loaded at once",
            where=name,
            remedy="build it under another --name and switch clients; or apply with --interrupt, which "
            "refuses requests to this endpoint until the new one is loaded",
        )
    return side_by_side.states(have, want, name, models, old, new, tuple(changed), touched, free)


def _difference(have: Side, want: Side, model: str, old: Mapping[str, int], new: Mapping[str, int]) -> str:
    """How a step would answer differently; empty if it would not."""
    if old[model] != new[model]:
        return "number"
    if have.content(model, old[model]) != want.content(model, new[model]):
        return "content"
    return versions.unlike(have.config(model), want.config(model))


def _in_place(
    have: Side, want: Side, name: str, model: str, old: Mapping[str, int], new: Mapping[str, int]
) -> bool:
    """Whether one changed step can be loaded in place: what is around it fits the old and the new one."""
    if old.keys() != new.keys() or old[model] != new[model] or _routes(have, name) != _routes(want, name):
        return False
    before, after = have.config(model), want.config(model)
    return all(before.raw.get(field) == after.raw.get(field) for field in _TENSORS)


def _routes(side: Side, name: str) -> list[object]:
    return [replace(step, model_version=-1) for step in side.config(name).steps]


def _interrupted(have: Side, want: Side, name: str, models: Collection[str]) -> Stage:
    whole = final(have, want, name, models, loads=(name,), proven=True, about="loaded anew")
    steps = [model for model in have.manifest.endpoints[name].models[1:] if model in models]
    return replace(
        whole,
        about=f"{name}: unloaded and loaded anew; requests are refused meanwhile",
        unloads=(name, *steps),
    )
