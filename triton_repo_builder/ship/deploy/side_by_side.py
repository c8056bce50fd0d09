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
from triton_repo_builder.produce.write.install import Piece, below
from triton_repo_builder.repository import CONFIG, SHARED, VERSION, pbtxt
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.ship.deploy.stage import Side, Stage, final


def states(
    have: Side,
    want: Side,
    name: str,
    models: Collection[str],
    old: Mapping[str, int],
    new: Mapping[str, int],
    changed: tuple[str, ...],
    touched: tuple[str, ...],
    free: int,
) -> list[Stage]:
    """The states after the one that is there. Raises ``TrbError`` APPLY_FAILED.

    ``old`` and ``new``: the version that each model runs; ``changed``: the steps that answer otherwise;
    ``touched``: those with any other file.
    """
    before, after = have.manifest.endpoints[name], want.manifest.endpoints[name]
    numbers = {model: new[model] if new[model] != old[model] else free for model in changed}
    here, there = below(have.state, models), below(want.state, models)
    own, config = f"{name}/", f"{name}/{CONFIG}"
    result: list[Stage] = []

    running = {model: old[model] for model in changed}
    pinned = {**here, config: _pinned(here[config], running, name)}
    result.append(
        Stage(
            about=f"{name}: steps pinned",
            state=pinned,
            entry=before,
            loads=(name,),
            expected={name: have.selected(name)},
        )
    )
    both = {path: piece for path, piece in pinned.items() if path.split("/")[0] not in touched}
    for model in touched:
        both |= _beside(have, want, model, old, new, numbers)
    result.append(
        Stage(
            about="; ".join(
                f"{model}: versions {old[model]} and {number}" for model, number in numbers.items()
            ),
            state=both,
            entry=before,
            loads=touched,
            expected={model: tuple(sorted((old[model], number))) for model, number in numbers.items()},
        )
    )
    switched = {path: piece for path, piece in both.items() if not path.startswith(own)}
    switched |= {path: piece for path, piece in there.items() if path.startswith(own)}
    switched[config] = _pinned(there[config], numbers, name)
    served = replace(after, previous=None, others={})
    result.append(
        Stage(
            about=f"{name}: runs the new versions",
            state=switched,
            entry=served,
            loads=(name,),
            expected={name: want.selected(name)},
            proven=True,
        )
    )
    again = tuple(model for model in changed if numbers[model] != new[model])
    if again:
        numbered = {path: piece for path, piece in switched.items() if path.split("/")[0] not in again}
        for model in again:
            numbered |= _renumbered(want, model, new[model], numbers[model])
        result.append(
            Stage(
                about="; ".join(f"{model}: version {new[model]}" for model in again),
                state=numbered,
                entry=served,
                loads=again,
                expected={model: tuple(sorted((new[model], numbers[model]))) for model in again},
            )
        )
        settled = {**numbered, config: _pinned(there[config], {m: new[m] for m in changed}, name)}
        result.append(
            Stage(
                about=f"{name}: runs version {new[name]}",
                state=settled,
                entry=served,
                loads=(name,),
                expected={name: want.selected(name)},
            )
        )
    result.append(
        final(have, want, name, models, loads=(*changed, name), proven=False, about="the old is unloaded")
    )
    return result


def _beside(
    have: Side,
    want: Side,
    model: str,
    old: Mapping[str, int],
    new: Mapping[str, int],
    numbers: Mapping[str, int],
) -> dict[str, Piece]:
    """A step with its old version and the revision's; one that changes in no answer is the revision's."""
    if model not in numbers:
        return below(want.state, (model,))
    state = _front(want, model, (old[model], numbers[model]))
    state |= {
        path: piece
        for path, piece in have.state.items()
        if path.startswith(tuple(f"{model}/{number}/" for number in have.numbers(model)))
        and not path.startswith(f"{model}/{numbers[model]}/")
    }
    return state | _version(want, model, new[model], numbers[model])


def _renumbered(want: Side, model: str, number: int, taken: int) -> dict[str, Piece]:
    """A step with its new content under both numbers."""
    return {
        **_front(want, model, (number, taken)),
        **_version(want, model, number, number),
        **_version(want, model, number, taken),
    }


def _front(want: Side, model: str, numbers: tuple[int, ...]) -> dict[str, Piece]:
    """The revision's files outside of version folders, with these versions loaded."""
    state = {
        path: piece
        for path, piece in below(want.state, (model,)).items()
        if not VERSION.fullmatch(path.split("/")[1])
    }
    config = f"{model}/{CONFIG}"
    text = state[config].bytes.decode("utf-8", "surrogateescape")
    listed = pbtxt.serve_versions(text, sorted(numbers))
    return {**state, config: Piece.of(listed.encode("utf-8", "surrogateescape"))}


def _version(want: Side, model: str, number: int, under: int) -> dict[str, Piece]:
    """A version folder of the revision under another number."""
    prefix = f"{model}/{number}/"
    return {
        f"{model}/{under}/{path.removeprefix(prefix)}": piece
        for path, piece in want.state.items()
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
