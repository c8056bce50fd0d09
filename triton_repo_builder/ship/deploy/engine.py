"""The one way to change what a running server serves: stage by stage, proven, and back if a stage fails.

A change is a list of stages, of which the first is there already. ``trb promote``, ``rollback``, ``apply``
and ``serve --follow`` give different lists, and put the files of a stage into the folder in different ways.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from triton_repo_builder import repository
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import CONFIG
from triton_repo_builder.run import smoke
from triton_repo_builder.run.client import HttpClient, RequestFailed, ready_versions
from triton_repo_builder.run.serve.loading import clear_failed
from triton_repo_builder.run.serve.loading.load_unload import Hung, Loader
from triton_repo_builder.ship.deploy import preflight
from triton_repo_builder.ship.deploy.stage import Stage

LOAD_TIMEOUT = 300.0
DRAIN = 60.0
"""Seconds that requests in flight get before a version counts as stuck."""
COUNTED = "executions"
"""Checks of the statistics, which other clients' requests disturb."""
OTHERS = ("ready", "models loaded")
"""Checks of the whole server: another endpoint that failed does not keep this one back."""
RESTART = (
    "start the server again: a load whose Python process died stays open for ever in this Triton, and until "
    "then the server says that it is not ready"
)
_SEE_LOG = "see the server's log"
Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class LiveServer:
    """The server that versions change on."""

    urls: smoke.Urls
    loader: Loader
    http: HttpClient

    @classmethod
    def at(cls, urls: smoke.Urls) -> LiveServer:
        """Raises ``TrbError`` UNREACHABLE."""
        return cls(urls=urls, loader=Loader(urls.http), http=HttpClient(urls.http, 10))

    def loaded(self) -> dict[str, tuple[int, ...]]:
        """The loaded versions of each model; empty if the server keeps its index to itself."""
        return ready_versions(self.http.index_or_empty())


class Folder(Protocol):
    """The folder that the server reads, while one endpoint in it changes."""

    root: Path

    def put(self, before: Stage, after: Stage) -> None:
        """Have the folder hold the files of ``after``."""

    def arrived(self, before: Stage, after: Stage) -> bool:
        """Whether a ``put`` that was interrupted had done all that it was to."""

    def stand_in(self, stage: Stage, model: str, number: int, failed: int) -> Stage | None:
        """A stage with the content of the version ``number`` of a model also under the number that failed.

        None if that would change answers.
        """


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How progress and errors of one command and endpoint read."""

    name: str
    code: Code
    before: str
    """The subject of "goes on answering", "serves again" and "could not be loaded again"."""
    proof: str
    """How the run of ``trb smoke`` is announced."""

    @property
    def options(self) -> smoke.SmokeOptions:
        """Options of ``trb smoke``."""
        return smoke.SmokeOptions(endpoints=(self.name,), clients=4, requests=4)

    def failed(self, message: str, remedy: str) -> TrbError:
        """The error of this command."""
        return TrbError(self.code, message, where=self.name, remedy=remedy)


class Engine:
    """Walks the stages of one endpoint."""

    def __init__(
        self, server: LiveServer, folder: Folder, stages: Sequence[Stage], terms: Terms, tell: Tell
    ) -> None:
        self.server, self.folder, self.stages, self.terms = server, folder, tuple(stages), terms
        self.there = self.stages[0]
        """The stage whose files the folder holds."""
        self.loads = 0
        """Load requests to the server, also on the way back."""
        self._tell = tell
        self._last = ""

    @property
    def is_between(self) -> bool:
        """Whether the folder holds neither the first nor the last stage."""
        return self.there is not self.stages[0] and self.there is not self.stages[-1]

    def tell(self, text: str) -> None:
        """Say what is done next; an error names it."""
        self._last = text
        self._tell(text)

    def walk(self, finish: Callable[[], object] = int) -> None:
        """Each stage in turn, then ``finish``; the way back if anything fails. Raises ``TrbError``."""
        reached, before = 0, self.terms.before
        try:
            for reached, stage in enumerate(self.stages[1:], start=1):
                self.tell(stage.about)
                self._take(self.stages[reached - 1], stage)
            finish()
        except Hung as error:
            # It holds the server's lock on these models: every other load would wait for it.
            self.restore_files()
            raise self.terms.failed(f"{error}; {before} goes on answering", RESTART) from None
        except BaseException as error:
            if not self.server.loader.alive():
                self.restore_files()
                if not isinstance(error, Exception):  # Ctrl-C, or SIGTERM to all of a pod: nothing follows
                    raise
                raise self.stopped(error) from None
            last = self._last
            self.tell(f"{self.terms.name}: going back to {before}")
            lost = self.roll_back(reached)
            self._last = last
            if isinstance(error, (RequestFailed, ConnectionError, TimeoutError)):
                error = self.stopped(error)
            if lost and isinstance(error, TrbError):
                error.message += f"; and {before} could not be loaded again: {lost}"
            raise error from None

    def roll_back(self, reached: int | None = None) -> str:
        """Through the same stages, backwards, from the last or ``reached``; what could not be loaded."""
        lost: dict[str, str] = {}
        for number in range(len(self.stages) - 1 if reached is None else reached, 0, -1):
            before, stage = self.stages[number - 1], self.stages[number]
            fresh = _models(stage) - _models(before)
            try:
                self._clear_failed_loads(stage, before, lost)
                taken = self.there is not before
                if taken:
                    self._put(before)
                for model in (*(stage.loads if taken else ()), *reversed(stage.unloads)):
                    if model not in fresh and model in _models(before):
                        lost[model] = self._reload(model)
                self._unload(fresh)
            except (OSError, RequestFailed, Hung, TrbError) as error:  # nothing may stop the rest
                lost[str(error)] = str(error)
        return "; ".join(dict.fromkeys(text for text in lost.values() if text))

    def restore_files(self) -> None:
        """Have the folder hold the files of the first stage; the server is not asked."""
        self._put(self.stages[0])

    def prove(self, state: str) -> None:
        """Raise if ``trb smoke`` fails; ``state``: what is served then."""
        report = smoke.run(self.server.urls, repository.read(self.folder.root), self.terms.options)
        if bad := failures(report):
            shown = f"see 'trb smoke {self.folder.root} --url {self.server.urls.http}'"
            raise self.terms.failed(
                smoke.did_not_pass(bad, state), f"{shown}, correct the version, build it again"
            )

    def refuse_loading(self, models: Collection[str]) -> None:
        """Raise if the server still loads one of these models."""
        if stuck := self.server.loader.loading(models):
            raise self.terms.failed(f"the server still loads {stuck}", RESTART)

    def stopped(self, error: BaseException) -> TrbError:
        """The error for a server that ended or answers no more."""
        ended = "ended" if not self.server.loader.alive() else f"does not answer ({error})"
        return self.terms.failed(
            f"the server {ended} during '{self._last}'; the repository is as before, with "
            f"{self.terms.before}",
            "see the server's log; start the server again, then run the same command again",
        )

    def _take(self, before: Stage, stage: Stage) -> None:
        self._unload(stage.unloads)
        self._put(stage)
        for model in stage.loads:
            self._load(model)
        self._unload(_models(before) - _models(stage) - {*stage.unloads})
        loaded = self.server.loaded()
        for model, numbers in stage.expected.items():
            if missing := {*numbers} - {*loaded.get(model, ())}:
                raise self.terms.failed(
                    f"the server has no version {min(missing)} of {model} after loading it",
                    "name the folder that the server reads (of apply: --to), or start it from this "
                    f"repository, in explicit mode ('trb serve {self.folder.root}' does), and try again",
                )
        if stage.proven:
            self.tell(self.terms.proof)
            self.prove(f"{self.terms.before} serves again")

    def _put(self, stage: Stage) -> None:
        before = self.there
        try:
            self.folder.put(before, stage)
            self.there = stage
        except BaseException:  # Ctrl-C comes at any moment, also once the files are there
            if self.folder.arrived(before, stage):
                self.there = stage
            raise

    def _load(self, model: str) -> None:
        try:
            reason = self._answer(model)
        except OSError as error:
            message = f"the server did not answer while {model} was loaded: {error}"
            raise self.terms.failed(message, _SEE_LOG) from None
        if reason:
            raise self.terms.failed(f"{model} could not be loaded: {reason}", _SEE_LOG)

    def _reload(self, model: str) -> str:
        try:
            return self._answer(model)
        except (OSError, Hung) as error:  # on the way back nothing may stop the rest
            return f"{model}: {error}"

    def _answer(self, model: str) -> str:
        """The server's reason if a load fails.

        Returns once what is unloaded has answered its last request: until then the server is not ready.
        """
        self.loads += 1
        reason = self.server.loader.load(model, LOAD_TIMEOUT)
        self.server.http.wait_until_settled(model, DRAIN)
        return reason

    def _unload(self, models: Collection[str]) -> None:
        if models:
            unload(self.server, models)

    def _clear_failed_loads(self, stage: Stage, before: Stage, lost: dict[str, str]) -> None:
        """Have the server forget loads that failed: until then it reports that it is not ready.

        It does once a version of that number was loaded. So what is served has its files, for a moment, under
        the number that failed.
        """
        failed = [(e.name, int(e.version or 0)) for e in self.server.http.index_or_empty() if e.failed]
        failed = [each for each in failed if each[0] in _models(stage)]
        fresh = {model for model, _ in failed if model not in self.server.loaded()}
        clear_failed.failures(self.server.urls.http, fresh)
        for model, number in failed:
            numbers = self.server.loaded().get(model)
            if model in fresh or model not in _models(before) or not numbers:
                continue
            if (stand_in := self.folder.stand_in(before, model, max(numbers), number)) is None:
                continue
            self.folder.put(self.there, stand_in)
            try:
                lost[model] = self._reload(model)
            finally:
                self.folder.put(stand_in, self.there)


def failures(report: smoke.SmokeReport) -> list[smoke.Check]:
    """The checks that say something against an endpoint on a server that others use, too."""
    return [
        check
        for check in report.not_passed
        if check.group != COUNTED and not (check.group == "server" and check.name in OTHERS)
    ]


def unload(server: LiveServer, models: Collection[str]) -> None:
    """Unload what is loaded of these, and wait until requests in flight are answered."""
    loaded = server.loaded()
    for model in models:
        if model in loaded:
            if reason := server.http.unload(model):
                raise TrbError(
                    Code.APPLY_FAILED, f"cannot be unloaded: {reason}", where=model, remedy=_SEE_LOG
                )
            server.http.wait_until_settled(model, DRAIN)


def proven_apart(
    terms: Terms, version: str, run: Callable[[], tuple[smoke.Check, ...] | None], tell: Tell
) -> None:
    """Raise unless ``version`` passes ``run`` on a server of its own, if an engine is installed here."""
    remedy = f"correct {version} and build it again; --no-preflight leaves this out"
    try:
        bad = run()
    except TrbError as error:
        if error.code in preflight.OF_THIS_MACHINE:
            raise
        message = f"{version} does not start on a server of its own; nothing was changed\n{error.message}"
        raise terms.failed(message, remedy) from None
    if bad is None:
        tell("no preflight: the embedded engine is not installed here")
    elif bad:
        raise terms.failed(smoke.did_not_pass(bad, "on a server of its own; nothing was changed"), remedy)


def _models(stage: Stage) -> set[str]:
    """The models that a server can load in this state."""
    return {
        path.split("/")[0] for path in stage.state if path.endswith(f"/{CONFIG}") and path.count("/") == 1
    }
