"""The states of an ensemble of which several steps change: no request is refused, no answer is of both.

The new content of the steps is loaded beside the old, under a version number that is free, the ensemble
changes over, and only then is the number that the revision says loaded and taken up in the same way:

    pin      the ensemble names the versions that it runs
    beside   each changed step with both
    switch   the ensemble runs the new ones; proven by smoke
    number   each of them again under the revision's own number
    settle   the ensemble at that number
    final    the revision's files
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.write import versions
from triton_repo_builder.produce.write.install import Piece, below
from triton_repo_builder.repository import CONFIG, SHARED, VERSION, pbtxt
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.ship.deploy.stage import Change, RepositoryState, Stage


def states(change: Change) -> list[Stage]:
    """The states after the one that is there. Raises ``TrbError`` APPLY_FAILED."""
    numbers = {
        model: change.new[model] if change.new[model] != change.old[model] else change.free
        for model in change.changed
    }
    renumbered = tuple(model for model in change.changed if numbers[model] != change.new[model])
    listed = [_pin(change)]
    listed.append(_beside(change, listed[-1], numbers))
    listed.append(_switch(change, listed[-1], numbers))
    if renumbered:
        listed.append(_number(change, listed[-1], {model: numbers[model] for model in renumbered}))
        listed.append(_settle(change, listed[-1]))
    loads = (*change.changed, change.name)
    return [*listed, change.final("the old is unloaded", loads=loads, proven=False)]


def _pin(change: Change) -> Stage:
    """The ensemble names the versions that it runs."""
    name, config = change.name, f"{change.name}/{CONFIG}"
    state = below(change.current.state, change.models)
    running = {model: change.old[model] for model in change.changed}
    return Stage(
        about=f"{name}: steps pinned",
        state={**state, config: _pinned(state[config], running, name)},
        entry=change.current.manifest.endpoints[name],
        loads=(name,),
        expected={name: change.current.selected(name)},
    )


def _beside(change: Change, before: Stage, numbers: Mapping[str, int]) -> Stage:
    """Each changed step with its old and its new version."""
    old, touched = change.old, change.touched
    state = _without(before, touched)
    for model in touched:
        state |= _both(change, model, numbers)
    return replace(
        before,
        about="; ".join(f"{model}: versions {old[model]} and {new}" for model, new in numbers.items()),
        state=state,
        loads=touched,
        expected={model: tuple(sorted((old[model], new))) for model, new in numbers.items()},
    )


def _switch(change: Change, before: Stage, numbers: Mapping[str, int]) -> Stage:
    """The ensemble runs the new versions."""
    name, config = change.name, f"{change.name}/{CONFIG}"
    after = below(change.target.state, (name,))
    return Stage(
        about=f"{name}: runs the new versions",
        state={**_without(before, (name,)), **after, config: _pinned(after[config], numbers, name)},
        entry=replace(change.target.manifest.endpoints[name], previous=None, others={}),
        loads=(name,),
        expected={name: change.target.selected(name)},
        proven=True,
    )


def _number(change: Change, before: Stage, numbers: Mapping[str, int]) -> Stage:
    """Steps that run under a free number, under the revision's number as well."""
    new, renumbered = change.new, tuple(numbers)
    state = _without(before, renumbered)
    for model, taken in numbers.items():
        state |= {
            **_front(change.target, model, (new[model], taken)),
            **_version(change.target, model, new[model], new[model]),
            **_version(change.target, model, new[model], taken),
        }
    return replace(
        before,
        about="; ".join(f"{model}: version {new[model]}" for model in renumbered),
        state=state,
        loads=renumbered,
        expected={model: tuple(sorted((new[model], taken))) for model, taken in numbers.items()},
        proven=False,
    )


def _settle(change: Change, before: Stage) -> Stage:
    """The ensemble at the revision's numbers."""
    name, new, config = change.name, change.new, f"{change.name}/{CONFIG}"
    running = {model: new[model] for model in change.changed}
    pinned = _pinned(change.target.state[config], running, name)
    return replace(
        before,
        about=f"{name}: runs version {new[name]}",
        state={**before.state, config: pinned},
        loads=(name,),
        expected={name: change.target.selected(name)},
    )


def _without(stage: Stage, models: Collection[str]) -> dict[str, Piece]:
    return {path: piece for path, piece in stage.state.items() if path.split("/")[0] not in models}


def _both(change: Change, model: str, numbers: Mapping[str, int]) -> dict[str, Piece]:
    """A step with its old version and the revision's; one that changes in no answer is the revision's."""
    current, target, old = change.current, change.target, change.old
    if model not in numbers:
        return below(target.state, (model,))
    state = _front(target, model, (old[model], numbers[model]))
    state |= {
        path: piece
        for path, piece in current.state.items()
        if path.startswith(tuple(f"{model}/{number}/" for number in current.numbers(model)))
        and not path.startswith(f"{model}/{numbers[model]}/")
    }
    return state | _version(target, model, change.new[model], numbers[model])


def _front(target: RepositoryState, model: str, numbers: tuple[int, ...]) -> dict[str, Piece]:
    """The revision's files outside of version folders, with these versions loaded."""
    state = {
        path: piece
        for path, piece in below(target.state, (model,)).items()
        if not VERSION.fullmatch(path.split("/")[1])
    }
    config = f"{model}/{CONFIG}"
    loading = versions.serving({config: state[config].bytes}, sorted(numbers))
    return {**state, config: Piece.of(loading[config])}


def _version(target: RepositoryState, model: str, number: int, under: int) -> dict[str, Piece]:
    """A version folder of the revision under another number."""
    prefix = f"{model}/{number}/"
    return {
        f"{model}/{under}/{path.removeprefix(prefix)}": piece
        for path, piece in target.state.items()
        if path.startswith(prefix) and not path.startswith(f"{prefix}{SHARED}/")
    }


def _pinned(config: Piece, numbers: Mapping[str, int], name: str) -> Piece:
    """An ensemble's configuration with these versions of its steps. Raises ``TrbError`` APPLY_FAILED."""
    text = pbtxt.pin_steps(config.bytes.decode("utf-8", "surrogateescape"), numbers)
    steps = {step.model_name: step.model_version for step in ModelConfig(pbtxt.parse(text)).steps}
    if any(steps.get(model, number) != number for model, number in numbers.items()):
        raise TrbError(
            Code.APPLY_FAILED,
            "its steps do not all name a model_version, as trb writes them",
            where=f"{name}/{CONFIG}",
            remedy="build the endpoint again, or apply with --interrupt",
        )
    return Piece.of(text.encode("utf-8", "surrogateescape"))
