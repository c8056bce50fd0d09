"""A revision on its way to a server: the stages of each endpoint, which ``engine.py`` walks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code
from triton_repo_builder.produce.write import install, ownership
from triton_repo_builder.repository import MANIFEST, Manifest
from triton_repo_builder.repository.journal import between
from triton_repo_builder.repository.manifest import EndpointEntry
from triton_repo_builder.run import smoke
from triton_repo_builder.ship.deploy import preflight, stages
from triton_repo_builder.ship.deploy.drift import Action, Drift
from triton_repo_builder.ship.deploy.engine import Engine, LiveServer, Tell, Terms, proven_apart, unload
from triton_repo_builder.ship.deploy.stage import Change, RepositoryState, Stage
from triton_repo_builder.ship.options import ApplyOptions


class Transition:
    """A revision on its way to a server: what is applied so far, and how the next endpoint follows."""

    def __init__(
        self,
        *,
        root: Path,
        revision: Path,
        current: RepositoryState,
        target: RepositoryState,
        urls: smoke.Urls,
        options: ApplyOptions,
        tell: Tell,
        stage: Path,
    ) -> None:
        self.stage = stage
        """Where a mark says that an endpoint is between two states (``repository/journal/between.py``)."""
        self.root, self.revision, self.current, self.target = root, revision, current, target
        self.urls, self.options, self.tell = urls, options, tell
        self.server = LiveServer.at(urls)
        self.manifest = current.manifest
        self.changed = False
        """Whether an endpoint is as the revision says, and was not before."""
        self.stuck: set[str] = set()
        """Endpoints that are between two states, and could not go back."""
        before = root / MANIFEST
        self._whole = [
            target.manifest.to_text(),
            *([files.read_text(before)] if before.is_file() else ()),
        ]
        self._original = current.manifest
        self._engines: list[Engine] = []

    @property
    def loads(self) -> int:
        """Load requests to the server, also on the way back."""
        return sum(engine.loads for engine in self._engines)

    def apply(self, drift: Drift) -> None:
        """Take one endpoint to the revision's state, or back. Raises ``TrbError``."""
        name = drift.endpoint
        if name not in self.target.manifest.endpoints and name not in self.current.manifest.endpoints:
            unload(self.server, (name,))
            return
        models = self._models(name)
        user_files = self._check_files(name, models)
        change = Change(current=self.current, target=self.target, name=name, models=models)
        listed = self._stages(drift, change)
        engine = Engine(
            self.server,
            _Swapped(self, name, user_files),
            [stages.first(change), *listed],
            self._terms(name),
            self.tell,
        )
        engine.refuse_loading(models)
        if self.options.preflight and name in self.target.manifest.endpoints:
            self.tell(f"{name}: preflight on a server of its own")
            number = self.target.manifest.endpoints[name].served.version
            proven_apart(
                engine.terms,
                f"version {number}",
                lambda: preflight.of_folder(self.revision, name, engine.terms.options),
                self.tell,
            )
        self._walk(engine)
        self.current = replace(
            self.current,
            manifest=self.manifest,
            state={
                **{
                    path: piece
                    for path, piece in self.current.state.items()
                    if path.split("/")[0] not in models
                },
                **listed[-1].state,
            },
        )

    def take_back(self) -> None:
        """Take back every endpoint that is as the revision says already, the last first."""
        for engine in reversed([each for each in self._engines if each.there is each.stages[-1]]):
            name = engine.terms.name
            self.tell(f"{name}: going back to what was served")
            self.stuck.add(name)
            lost = ""
            if self.server.loader.alive():
                lost = engine.roll_back()
            else:
                engine.restore_files()
            if lost:
                self.tell(f"{name}: what was served could not be loaded again: {lost}")
            elif engine.there is engine.stages[0]:
                self.stuck.discard(name)
        if not self.stuck and self.changed:
            install.install(self.root, {}, {}, (), self._original)
            self.changed = False

    def _walk(self, engine: Engine) -> None:
        name = engine.terms.name
        self._engines.append(engine)
        between.mark(self.stage, name, self._whole)
        self.stuck.add(name)
        try:
            engine.walk()
        finally:
            if not engine.is_between:
                self.stuck.discard(name)
            self.changed |= engine.there is not engine.stages[0]

    def _models(self, name: str) -> frozenset[str]:
        """The model folders that change with an endpoint: not those that only others need."""
        old, new = (side.manifest.endpoints.get(name) for side in (self.current, self.target))
        needed = {
            model
            for manifest in (self.manifest, self.target.manifest)
            for other, entry in manifest.endpoints.items()
            if other != name and (other in self.target.manifest.endpoints or manifest is self.manifest)
            for model in _all_models(entry)
        }
        mine = set(_all_models(old)) if old else set()
        return frozenset((mine - needed) | (set(_all_models(new)) if new else set()))

    def _check_files(self, name: str, models: Collection[str]) -> tuple[str, ...]:
        """The user's own files, which stay. Raises if one is in the way, or one of trb's was edited."""
        recorded = self.current.manifest.files
        foreign = install.foreign(self.root, models, recorded)
        target = self.target.state
        edited = [
            path
            for path, piece in install.below(self.current.state, models).items()
            if piece.record.sha256 != recorded[path].sha256
            and not (path in target and target[path].record.sha256 == piece.record.sha256)
        ]
        in_the_way = [path for path in foreign if path in target and path.split("/")[0] in models]
        if (edited or in_the_way) and not self.options.force:
            remedy = "record the edit with trb accept, or keep it elsewhere; --force replaces it"
            raise ownership.edited_error(edited, self.root, remedy, foreign=in_the_way)
        return tuple(path for path in foreign if path not in in_the_way)

    def _stages(self, drift: Drift, change: Change) -> list[Stage]:
        if drift.endpoint not in self.target.manifest.endpoints:
            return stages.removing(change)
        if drift.action is Action.LOAD:
            return stages.loading(change)
        sides = (change.current, change.target)
        used = [number for side in sides for model in change.models for number in side.numbers(model)]
        free = max((*used, *(n for numbers in self.server.loaded().values() for n in numbers))) + 1
        return stages.changing(replace(change, free=free), interrupt=self.options.interrupt)

    def manifest_of(self, name: str, before: Stage, after: Stage) -> Manifest:
        """The manifest in a state of an endpoint."""
        models = {path.split("/")[0] for path in (*before.state, *after.state)}
        endpoints = {n: entry for n, entry in self.manifest.endpoints.items() if n != name}
        if after.entry is not None:
            endpoints[name] = after.entry
        others = {path: r for path, r in self.manifest.files.items() if path.split("/")[0] not in models}
        files = {**others, **{path: piece.record for path, piece in after.state.items()}}
        return Manifest(endpoints=endpoints, files=files, generator=self.target.manifest.generator)

    def _terms(self, name: str) -> Terms:
        return Terms(
            name=name,
            code=Code.APPLY_FAILED,
            before="what was served before",
            proof=f"{name}: smoke",
        )


class _Swapped:
    """The folder of an apply: whole states are swapped in, each with its manifest."""

    def __init__(self, transition: Transition, name: str, user_files: Collection[str]) -> None:
        self.root = transition.root
        self._transition, self._name, self._user_files = transition, name, user_files

    def put(self, before: Stage, after: Stage) -> None:
        """Swap in what differs."""
        manifest = self._transition.manifest_of(self._name, before, after)
        install.install(self.root, before.state, after.state, self._user_files, manifest)
        self._transition.manifest = manifest

    def arrived(self, before: Stage, after: Stage) -> bool:
        """Whether manifest.json, the last that is swapped in, is that of ``after``."""
        manifest = self._transition.manifest_of(self._name, before, after)
        if files.read_text(self.root / MANIFEST) != manifest.to_text():
            return False
        self._transition.manifest = manifest
        return True

    def stand_in(self, stage: Stage, model: str, number: int, failed: int) -> Stage | None:
        """The files of a version that is served, under the number that failed as well."""
        return stages.stand_in(stage, model, number, failed)


def _all_models(entry: EndpointEntry) -> tuple[str, ...]:
    return tuple(dict.fromkeys(model for version in entry.versions.values() for model in version.models))
