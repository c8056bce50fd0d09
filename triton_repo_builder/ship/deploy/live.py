"""Another version takes over on a server that runs, with no request lost.

The stages, each by explicit load, during which the model that was there goes on answering:

0. A preflight: the new version alone, on a server of its own, passes ``trb smoke``.
1. The ensemble, whose steps are pinned to the version that is served: from here on nothing mixes.
2. Each step, with both versions.
3. The ensemble at the new version: requests in flight keep the steps that they started with. ``trb smoke``
   passes against the new version's golden cases.
4. Each step, with the new version alone.

If any stage fails, the way back is the same (``engine.py``): the ensemble first, to steps that are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.write import versions
from triton_repo_builder.produce.write.install import Piece
from triton_repo_builder.repository import CONFIG, MANIFEST, Manifest, pbtxt
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.run import smoke
from triton_repo_builder.run.client import RequestFailed
from triton_repo_builder.run.serve.loading import load_unload
from triton_repo_builder.ship.deploy import preflight, promote
from triton_repo_builder.ship.deploy.engine import RESTART, Engine, LiveServer, Tell, Terms, proven_apart
from triton_repo_builder.ship.deploy.promote import Move
from triton_repo_builder.ship.deploy.stage import Stage

FILES = {"python": "model.py", "onnxruntime": "model.onnx"}
"""The file that a backend loads from a version directory by default."""


def on_server(move: Move, urls: smoke.Urls, tell: Tell, *, preflight_first: bool) -> None:
    """Promote on a server that runs from this repository in explicit mode; go back if anything fails.

    With ``preflight_first`` the new version first has to pass on a server of its own. Raises ``TrbError``
    PROMOTE_FAILED, UNREACHABLE.
    """
    terms = _terms(move)
    for model in move.models:
        old, new = (
            ModelConfig(pbtxt.parse(shared[f"{model}/{CONFIG}"].decode()))
            for shared in (move.old_files, move.new_files)
        )
        if field := versions.unlike(old, new):
            raise terms.failed(
                f"version {move.new} of {model} has another {field}: both cannot be loaded at once",
                "promote it in the repository (without --url), then start a server on it and switch clients",
            )
    engine = Engine(LiveServer.at(urls), _InPlace(move), stages(move), terms, tell)
    try:
        load_unload.require_explicit(load_unload.find(urls.http))
        engine.refuse_loading(move.models)
        if preflight_first:
            engine.tell(f"preflight: version {move.new} on a server of its own")
            proven_apart(terms, f"version {move.new}", lambda: preflight.run(move, terms.options), tell)
        _settle(move, engine)
        engine.tell(f"smoke: version {move.old} as it is served now")
        engine.prove("nothing was changed")
        with promote.undoable(move, *_stand_in_configs(move).values()) as keep:
            engine.walk(keep)
    except RequestFailed as error:
        raise engine.stopped(error) from None


def settle(root: Path, name: str, urls: smoke.Urls, tell: Tell) -> bool:
    """Have the server serve the version that the repository serves; False if it does already.

    A promotion that was killed may have left both versions loaded. Raises ``TrbError`` PROMOTE_FAILED.
    """
    server = LiveServer.at(urls)
    recorded = repository.read(root).manifest or Manifest()
    entry = recorded.endpoints[name]
    served = entry.served.version
    try:
        loaded = server.loaded()
        others = {n for model in entry.models for n in loaded.get(model, ())} - {served}
        if not others and str(served) in server.http.served_versions(name):
            return False
        present = versions.present(root, entry.models)
        others = {number for number in others if number in entry.versions and number in present}
        if not others:
            raise TrbError(
                Code.PROMOTE_FAILED,
                f"the server does not have version {served}, which the repository serves",
                where=urls.http,
                remedy=f"trb load {name}; or start the server again",
            )
        move = promote.between(root, recorded, name, max(others))
        _settle(move, Engine(server, _InPlace(move), stages(move), _terms(move), tell))
    except RequestFailed as error:
        raise TrbError(Code.SERVER_DIED, f"does not answer: {error}", where=urls.http) from None
    return True


def _settle(move: Move, engine: Engine) -> None:
    """Take back what a killed promotion left on the server: the repository is as before already."""
    loaded = engine.server.loaded()
    if all(loaded.get(model, (move.old,)) == (move.old,) for model in move.models):
        return
    engine.tell(
        f"the server has another version loaded than the repository serves: back to version {move.old}"
    )
    with promote.undoable(move, *_stand_in_configs(move).values()):
        engine.there = engine.stages[-1]
        if lost := engine.roll_back():
            raise engine.terms.failed(f"version {move.old} could not be loaded again: {lost}", RESTART)


def stages(move: Move) -> list[Stage]:
    """The stages of a promotion, of which the first is there."""
    name, old, new, steps = move.name, move.old, move.new, move.steps
    entry, promoted = move.manifest.endpoints[name], promote.promoted(move).endpoints[name]
    models: dict[str, tuple[Mapping[str, bytes], Iterable[int]]]
    models = dict.fromkeys(move.models, (move.old_files, (old,)))

    def stage(about: str, loads: tuple[str, ...], expected: tuple[int, ...]) -> Stage:
        return Stage(
            about=about,
            state={path: Piece.of(content) for path, content in promote.served(move, models).items()},
            entry=entry,
            loads=loads,
            expected=dict.fromkeys(loads, expected),
        )

    listed = [stage("as before", (), ())]
    if steps:
        listed.append(stage(f"{name}: steps pinned to version {old}", (name,), (old,)))
    for step in steps:
        models[step] = move.new_files, sorted((old, new))
        listed.append(stage(f"{step}: versions {old} and {new}", (step,), (old, new)))
    models[name], entry = (move.new_files, (new,)), promoted
    listed.append(replace(stage(f"{name}: version {new}", (name,), (new,)), proven=True))
    models.update(dict.fromkeys(steps, (move.new_files, (new,))))
    return [*listed, stage(f"version {old} is unloaded", steps, (new,))]


class _InPlace:
    """The repository of a promotion: its files are written in place, under ``promote.undoable``'s journal."""

    def __init__(self, move: Move) -> None:
        self.root = move.root
        self._move = move
        self._manifest = files.read(move.root / MANIFEST)

    def put(self, before: Stage, after: Stage) -> None:
        """Write the files of ``after``, as far as they differ."""
        promote.put(self._move, {path: piece.bytes for path, piece in after.state.items()})
        is_old = after.entry is self._move.manifest.endpoints[self._move.name]
        text = self._manifest if is_old else promote.promoted(self._move).to_text().encode()
        if files.read(self.root / MANIFEST) != text:
            files.write(self.root / MANIFEST, text)

    def arrived(self, before: Stage, after: Stage) -> bool:
        """No: the next ``put`` writes what differs, and the journal puts all files back."""
        return False

    def stand_in(self, stage: Stage, model: str, number: int, failed: int) -> Stage | None:
        """The old version's files under the number of the new one, if only the old one is served."""
        move, path = self._move, f"{model}/{CONFIG}"
        served = versions.serving(move.old_files, (move.old,))
        if (number, failed) != (move.old, move.new) or stage.state[path].bytes != served[path]:
            return None
        content = versions.serving(_stand_in_configs(move)[model], sorted((number, failed)))
        return replace(stage, state={**stage.state, path: Piece.of(content[path])})


def _stand_in_configs(move: Move) -> dict[str, dict[str, bytes]]:
    """For each model its config.pbtxt with which the old version's file is loaded under the new number."""
    configs = {}
    for model in move.models:
        path = f"{model}/{CONFIG}"
        file = FILES.get(ModelConfig(pbtxt.parse(move.old_files[path].decode())).backend)
        instead = f'default_model_filename: "../{move.old}/{file}"\n' if file else ""
        configs[model] = {path: move.old_files[path] + instead.encode()}
    return configs


def _terms(move: Move) -> Terms:
    return Terms(
        name=move.name,
        code=Code.PROMOTE_FAILED,
        before=f"version {move.old}",
        proof=f"smoke: version {move.new}",
    )
