"""How a running server and its folder go from one state of an endpoint to the next, and back if one fails."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.write import install, ownership
from triton_repo_builder.repository import CONFIG, MANIFEST, Manifest
from triton_repo_builder.repository.journal import between
from triton_repo_builder.repository.manifest import EndpointEntry
from triton_repo_builder.run import smoke
from triton_repo_builder.run.client import HttpClient, RequestFailed, ready_versions
from triton_repo_builder.run.serve.loading import clear_failed
from triton_repo_builder.run.serve.loading.load_unload import Hung, Loader
from triton_repo_builder.ship.deploy import live, preflight, stages
from triton_repo_builder.ship.deploy.drift import Action, Drift
from triton_repo_builder.ship.deploy.stage import Change, RepositoryState, Stage

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is allowed, and how thorough it is."""

    preflight: bool = True
    interrupt: bool = False
    """An endpoint that cannot change over in one go may refuse requests meanwhile."""
    force: bool = False
    """Files in the folder that were edited since trb wrote them are replaced."""
    dry_run: bool = False


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
        options: Options,
        tell: Tell,
        stage: Path,
    ) -> None:
        self.stage = stage
        """Where a mark says that an endpoint is between two states (``repository/journal/between.py``)."""
        self.root, self.revision, self.current, self.target = root, revision, current, target
        self.urls, self.options, self.tell = urls, options, tell
        self.http = HttpClient(urls.http, 10)
        self.loader = Loader(urls.http)
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
        self._done: list[tuple[str, list[Stage], Collection[str]]] = []
        """Endpoints that are as the revision says, with the states that led there."""
        self._there: Stage | None = None
        """The state that the folder has, while an endpoint changes."""
        self.loads = 0
        """Loads that were asked of the server, those of a way back included."""

    def apply(self, found: Drift) -> None:
        """One endpoint: to what the revision says, or back to what it was. Raises ``TrbError``."""
        name = found.endpoint
        if name not in self.target.manifest.endpoints and name not in self.current.manifest.endpoints:
            self._unload((name,))
            return
        models = self._models(name)
        own = self._check_files(name, models)
        change = Change(current=self.current, target=self.target, name=name, models=models)
        listed = self._stages(found, change)
        if stuck := self.loader.loading(models):
            raise _failed(name, f"the server still loads {stuck}", live.RESTART)
        if self.options.preflight and name in self.target.manifest.endpoints:
            self._preflight(name)
        first = stages.first(change)
        self._walk(name, [first, *listed], own)
        self._done.append((name, [first, *listed], own))
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
        while self._done:
            name, listed, own = self._done.pop()
            self.tell(f"{name}: going back to what was served")
            self._there = listed[-1]
            self.stuck.add(name)
            if self.loader.alive():
                lost = self._back(name, listed, own)
            else:
                lost = ""
                self._install(name, listed[-1], listed[0], own)
            if lost:
                self.tell(f"{name}: what was served could not be loaded again: {lost}")
            elif self._there is listed[0]:
                self.stuck.discard(name)
        if not self.stuck and self.changed:
            install.install(self.root, {}, {}, (), self._original)
            self.changed = False

    def _loaded(self) -> dict[str, tuple[int, ...]]:
        return ready_versions(self.http.index_or_empty())

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
        wanted = self.target.state
        edited = [
            path
            for path, piece in install.below(self.current.state, models).items()
            if piece.record.sha256 != recorded[path].sha256
            and not (path in wanted and wanted[path].record.sha256 == piece.record.sha256)
        ]
        in_the_way = [path for path in foreign if path in wanted and path.split("/")[0] in models]
        if (edited or in_the_way) and not self.options.force:
            remedy = "keep your edit elsewhere, or replace it with --force"
            raise ownership.edited_error(edited, self.root, remedy, foreign=in_the_way)
        return tuple(path for path in foreign if path not in in_the_way)

    def _stages(self, found: Drift, change: Change) -> list[Stage]:
        if found.endpoint not in self.target.manifest.endpoints:
            return stages.removing(change)
        if found.action is Action.LOAD:
            return stages.loading(change)
        sides = (change.current, change.target)
        used = [number for side in sides for model in change.models for number in side.numbers(model)]
        free = max((*used, *(n for numbers in self._loaded().values() for n in numbers))) + 1
        return stages.changing(replace(change, free=free), interrupt=self.options.interrupt)

    def _preflight(self, name: str) -> None:
        self.tell(f"{name}: preflight on a server of its own")
        remedy = "correct it and build it again; --no-preflight leaves this out"
        try:
            bad = preflight.of_folder(self.revision, name, _smoke(name))
        except TrbError as error:
            if error.code in preflight.OF_THIS_MACHINE:
                raise
            message = f"does not start on a server of its own; nothing was changed\n{error.message}"
            raise _failed(name, message, remedy) from None
        if bad is None:
            self.tell("no preflight: the embedded engine is not installed here")
        elif bad:
            raise _failed(
                name, smoke.did_not_pass(bad, "on a server of its own; nothing was changed"), remedy
            )

    def _walk(self, name: str, listed: list[Stage], own: Collection[str]) -> None:
        """From state to state; back to the first if one fails."""
        reached = 0
        self._there = listed[0]
        try:
            between.mark(self.stage, name, self._whole)
            self.stuck.add(name)
            for number, stage in enumerate(listed[1:], start=1):
                self.tell(stage.about)
                reached = number
                self._take(name, listed[number - 1], stage, own)
        except Hung as error:
            # It holds the server's lock on these models: every other load would wait for it.
            self._install(name, self._there, listed[0], own)
            raise _failed(name, f"{error}; what was loaded before goes on answering", live.RESTART) from None
        except BaseException as error:
            if not self.loader.alive():
                self._install(name, self._there, listed[0], own)
                if not isinstance(error, Exception):  # Ctrl-C, or SIGTERM to all of a pod: nothing follows
                    raise
                raise _failed(
                    name,
                    f"the server ended during '{listed[reached].about}'; its folder is as before",
                    "see the server's log; start the server again, then run the same command again",
                ) from None
            self.tell(f"{name}: going back to what was served")
            lost = self._back(name, listed[: reached + 1], own)
            if isinstance(error, (RequestFailed, OSError)):
                error = _failed(name, f"the server did not answer: {error}", "see the server's log")
            if lost and isinstance(error, TrbError):
                error.message += f"; and what was served could not be loaded again: {lost}"
            raise error from None
        finally:
            if self._there is listed[0] or self._there is listed[-1]:
                self.stuck.discard(name)
            self.changed |= self._there is not listed[0]

    def _take(self, name: str, before: Stage, stage: Stage, own: Collection[str]) -> None:
        self._unload(stage.unloads)
        self._install(name, before, stage, own)
        for model in stage.loads:
            if reason := self._load(model):
                raise _failed(name, f"{model} could not be loaded: {reason}", "see the server's log")
        self._unload(tuple(_models(before) - _models(stage) - {*stage.unloads}))
        loaded = self._loaded()
        for model, numbers in stage.expected.items():
            if missing := {*numbers} - {*loaded.get(model, ())}:
                raise _failed(
                    name,
                    f"the server has no version {min(missing)} of {model} after loading it",
                    f"name the folder that the server reads with --to; it must run in explicit mode, as "
                    f"'trb serve {self.root}' does",
                )
        if stage.proven:
            self._prove(name)

    def _back(self, name: str, listed: list[Stage], own: Collection[str]) -> str:
        """Through the same states, backwards; what went wrong with that."""
        lost = []
        for number in range(len(listed) - 1, 0, -1):
            before, stage = listed[number - 1], listed[number]
            fresh = _models(stage) - _models(before)
            try:
                lost += self._forget(name, stage, before, own)
                taken = self._there is not before
                if taken:
                    self._install(name, stage, before, own)
                for model in (*(stage.loads if taken else ()), *reversed(stage.unloads)):
                    if model not in fresh and model in _models(before):
                        lost.append(self._load(model))
                self._unload(tuple(fresh))
            except (OSError, RequestFailed, Hung, TrbError) as error:  # nothing may stop the rest
                lost.append(str(error))
        return "; ".join(dict.fromkeys(text for text in lost if text))

    def _forget(self, name: str, stage: Stage, before: Stage, own: Collection[str]) -> list[str]:
        """Have the server forget loads that failed: until then it reports that it is not ready."""
        failed = [(e.name, int(e.version or 0)) for e in self.http.index_or_empty() if e.failed]
        failed = [each for each in failed if each[0] in _models(stage)]
        fresh = {model for model, _ in failed if model not in self._loaded()}
        clear_failed.failures(self.urls.http, fresh)
        lost = []
        for model, number in failed:
            config = before.state.get(f"{model}/{CONFIG}")
            numbers = self._loaded().get(model)
            if model in fresh or config is None or not numbers:
                continue
            posed = stages.posed(before, model, max(numbers), number)
            self._install(name, stage, posed, own)
            lost.append(self._load(model))
            self._install(name, posed, stage, own)
        return lost

    def _install(self, name: str, before: Stage, after: Stage, own: Collection[str]) -> None:
        manifest = self._manifest(name, after, before)
        install.install(self.root, before.state, after.state, own, manifest)
        self.manifest, self._there = manifest, after

    def _manifest(self, name: str, after: Stage, before: Stage | None = None) -> Manifest:
        """What manifest.json says in a state of an endpoint."""
        was = before or self._there
        models = {path.split("/")[0] for path in (*(was.state if was else ()), *after.state)}
        endpoints = {n: entry for n, entry in self.manifest.endpoints.items() if n != name}
        if after.entry is not None:
            endpoints[name] = after.entry
        others = {path: r for path, r in self.manifest.files.items() if path.split("/")[0] not in models}
        files = {**others, **{path: piece.record for path, piece in after.state.items()}}
        return Manifest(endpoints=endpoints, files=files, generator=self.target.manifest.generator)

    def _load(self, model: str) -> str:
        self.loads += 1
        reason = self.loader.load(model, live.LOAD_TIMEOUT)
        self.http.wait_until_settled(model, live.DRAIN)
        return reason

    def _unload(self, models: Collection[str]) -> None:
        """Unload what is loaded of these, and wait until requests in flight are answered."""
        loaded = self._loaded()
        for model in models:
            if model in loaded:
                if reason := self.http.unload(model):
                    raise TrbError(
                        Code.APPLY_FAILED,
                        f"cannot be unloaded: {reason}",
                        where=model,
                        remedy="see the server's log",
                    )
                self.http.wait_until_settled(model, live.DRAIN)

    def _prove(self, name: str) -> None:
        self.tell(f"{name}: smoke")
        report = smoke.run(self.urls, repository.read(self.root), _smoke(name))
        if bad := live.failures(report):
            remedy = f"see 'trb smoke {self.root} --url {self.urls.http}', correct it, build it again"
            raise _failed(name, smoke.did_not_pass(bad, "what was served before serves again"), remedy)


def _all_models(entry: EndpointEntry) -> tuple[str, ...]:
    return tuple(dict.fromkeys(model for version in entry.versions.values() for model in version.models))


def _models(stage: Stage) -> set[str]:
    """The models that a server can load in this state."""
    return {
        path.split("/")[0] for path in stage.state if path.endswith(f"/{CONFIG}") and path.count("/") == 1
    }


def _smoke(name: str) -> smoke.Options:
    return smoke.Options(endpoints=(name,), clients=4, requests=4)


def _failed(name: str, message: str, remedy: str) -> TrbError:
    return TrbError(Code.APPLY_FAILED, message, where=name, remedy=remedy)
