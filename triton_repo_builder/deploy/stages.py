"""The states through which a served repository goes while an endpoint changes, each whole and servable.

A step of an ensemble that changes alone, with the same tensors, is loaded in place: Triton answers with the
old until the new is ready, and no answer is of two versions. Where several steps change, their new content is
loaded beside the old, under a version number that is free, the ensemble changes over, and only then is the
number that the revision says loaded and taken up in the same way:

    pin      the ensemble names the versions that it runs
    beside   each changed step with both
    switch   the ensemble runs the new ones; proven by smoke
    number   each of them again under the revision's own number
    settle   the ensemble at that number
    final    the revision's files
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.repository import CONFIG, SHARED, VERSION, Manifest, pbtxt
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.manifest import EndpointEntry
from triton_repo_builder.write import versions
from triton_repo_builder.write.install import Piece, State, below

_STEP = re.compile(r'(model_name\s*:\s*"([^"]+)"\s*model_version\s*:\s*)-?\d+')
_TENSORS = ("input", "output", "max_batch_size", "batch_input", "batch_output", "model_transaction_policy")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One state of an endpoint's models, and how the server takes it up."""

    about: str
    state: State
    """Every file that trb has in the models that change."""
    entry: EndpointEntry | None
    """The endpoint in manifest.json; None: it is not there."""
    loads: tuple[str, ...] = ()
    """In this order, after the files are there."""
    expected: Mapping[str, tuple[int, ...]]
    """The versions that are ready then."""
    unloads: tuple[str, ...] = ()
    """Before the files change."""
    proven: bool = False
    """Whether trb smoke has to pass then."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """A repository as the stages need it: the served folder, or the revision."""

    manifest: Manifest
    state: State

    def config(self, model: str) -> ModelConfig:
        """A model's configuration; empty if it has none. Raises ``TrbError`` REPOSITORY_UNREADABLE."""
        piece = self.state.get(f"{model}/{CONFIG}")
        try:
            return (
                ModelConfig(pbtxt.parse(piece.bytes.decode("utf-8", "replace"))) if piece else ModelConfig()
            )
        except pbtxt.PbtxtError as error:
            raise TrbError(
                Code.REPOSITORY_UNREADABLE,
                f"cannot be read: {error}",
                where=f"{model}/{CONFIG}",
                remedy="restore the file (git checkout), or build the endpoint again",
            ) from None

    def numbers(self, model: str) -> tuple[int, ...]:
        """The version folders of a model, ascending."""
        parts = [path.split("/") for path in self.state if path.startswith(f"{model}/")]
        return tuple(sorted({int(part[1]) for part in parts if len(part) > 2 and VERSION.fullmatch(part[1])}))

    def selected(self, model: str) -> tuple[int, ...]:
        """The versions of a model that are loaded from this."""
        return self.config(model).select(self.numbers(model))

    def runs(self, name: str) -> dict[str, int]:
        """The version of each model that a request to this endpoint meets, the endpoint's own first."""
        models = self.manifest.endpoints[name].models
        pins = {step.model_name: step.model_version for step in self.config(name).steps}
        runs = {}
        for model in models:
            pin = pins.get(model, -1)
            runs[model] = pin if pin > 0 else max(self.selected(model), default=0)
        return runs

    def loaded(self, name: str) -> dict[str, tuple[int, ...]]:
        """The versions of each model of an endpoint that a server has loaded."""
        return {model: self.selected(model) for model in self.manifest.endpoints[name].models}

    def content(self, model: str, number: int) -> dict[str, str]:
        """Hex sha256 of what a version loads, by the path in its folder."""
        prefix = f"{model}/{number}/"
        return {
            path.removeprefix(prefix): piece.record.sha256
            for path, piece in self.state.items()
            if path.startswith(prefix) and not path.startswith(f"{prefix}{SHARED}/")
        }

    def same_files(self, other: Side, model: str) -> bool:
        """Whether trb's files of a model are the same."""
        mine, others = (
            {path: piece.record.sha256 for path, piece in below(side.state, (model,)).items()}
            for side in (self, other)
        )
        return mine == others


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
    return [_final(have, want, name, models, loads=(*steps, name), proven=True, about="loaded")]


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
        return [
            _final(have, want, name, models, loads=(*touched, name), proven=True, about="loaded in place")
        ]
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
    return _side_by_side(have, want, name, models, old, new, tuple(changed), touched, free)


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


def _final(
    have: Side,
    want: Side,
    name: str,
    models: Collection[str],
    *,
    loads: tuple[str, ...],
    proven: bool,
    about: str,
) -> Stage:
    """The revision's files; models that it does not need any more are unloaded once the ensemble changed."""
    return Stage(
        about=f"{name}: {about}",
        state=below(want.state, models),
        entry=want.manifest.endpoints[name],
        loads=loads,
        expected=want.loaded(name),
        proven=proven,
    )


def _interrupted(have: Side, want: Side, name: str, models: Collection[str]) -> Stage:
    final = _final(have, want, name, models, loads=(name,), proven=True, about="loaded anew")
    steps = [model for model in have.manifest.endpoints[name].models[1:] if model in models]
    return replace(
        final,
        about=f"{name}: unloaded and loaded anew; requests are refused meanwhile",
        unloads=(name, *steps),
    )


def _side_by_side(
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
        _final(have, want, name, models, loads=(*changed, name), proven=False, about="the old is unloaded")
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
    text = config.bytes.decode("utf-8", "surrogateescape")
    text = _STEP.sub(lambda m: f"{m[1]}{numbers[m[2]]}" if m[2] in numbers else m[0], text)
    steps = {step.model_name: step.model_version for step in ModelConfig(pbtxt.parse(text)).steps}
    if any(steps.get(model, number) != number for model, number in numbers.items()):
        raise TrbError(
            Code.APPLY_FAILED,
            "its steps do not name a model_version after each model_name, as trb writes them",
            where=f"{name}/{CONFIG}",
            remedy="build the endpoint again, or apply with --interrupt",
        )
    return Piece.of(text.encode("utf-8", "surrogateescape"))
