"""Another version takes over on a server that runs, with no request lost.

The order, each step by explicit load, during which the model that was there goes on answering:

0. A preflight: the new version alone, on a server of its own, passes ``trb smoke``.
1. The ensemble, whose steps are pinned to the version that is served: from here on nothing mixes.
2. Each step, with both versions.
3. The ensemble at the new version: requests in flight keep the steps that they started with.
4. ``trb smoke`` against the new version's golden cases.
5. Each step, with the new version alone.

If any step fails, the way back is the same: the ensemble first, to steps that are still loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.write import versions
from triton_repo_builder.repository import CONFIG, Manifest, manifest, pbtxt
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.journal.undo import Keep
from triton_repo_builder.run import smoke
from triton_repo_builder.run.client import HttpClient, RequestFailed, ready_versions
from triton_repo_builder.run.serve.loading import load_unload
from triton_repo_builder.run.serve.loading.load_unload import Hung, Loader
from triton_repo_builder.ship.deploy import preflight, promote
from triton_repo_builder.ship.deploy.promote import Move

LOAD_TIMEOUT = 300.0
DRAIN = 60.0
"""Seconds that requests in flight get before a version counts as stuck."""
COUNTED = "executions"
"""Checks of the statistics, which other clients' requests disturb."""
OTHERS = ("ready", "models loaded")
"""Checks of the whole server: another endpoint that failed does not keep this one back."""
FILES = {"python": "model.py", "onnxruntime": "model.onnx"}
"""The file that a backend loads from a version directory by default."""
Tell = Callable[[str], None]
RESTART = (
    "start the server again: a load whose Python process died stays open for ever in this Triton, and until "
    "then the server says that it is not ready"
)


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

    def versions(self, models: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """The loaded versions of these models; empty if the server keeps its index to itself."""
        loaded = ready_versions(self.http.index_or_empty())
        return {model: loaded[model] for model in models if model in loaded}


class _Steps:
    """Passes on what is being done, and keeps it for the message of a failure."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.last = ""

    def __call__(self, text: str) -> None:
        self.last = text
        self._tell(text)


def on_server(
    move: Move, urls: smoke.Urls, options: smoke.SmokeOptions, tell: Tell, *, preflight_first: bool
) -> None:
    """Promote on a server that runs from this repository in explicit mode; go back if anything fails.

    With ``preflight_first`` the new version first has to pass on a server of its own. Raises ``TrbError``
    PROMOTE_FAILED, UNREACHABLE.
    """
    for model in move.models:
        old, new = (
            ModelConfig(pbtxt.parse(shared[f"{model}/{CONFIG}"].decode()))
            for shared in (move.old_files, move.new_files)
        )
        if field := versions.unlike(old, new):
            raise _failed(
                move,
                f"version {move.new} of {model} has another {field}: both cannot be loaded at once",
                "promote it in the repository (without --url), then start a server on it and switch clients",
            )
    server = LiveServer.at(urls)
    steps = _Steps(tell)
    try:
        load_unload.require_explicit(load_unload.find(urls.http))
        if stuck := server.loader.loading(move.models):
            raise _failed(move, f"the server still loads {stuck}", RESTART)
        if preflight_first:
            _preflight(move, options, steps)
        _settle(move, server, steps)
        steps(f"smoke: version {move.old} as it is served now")
        _prove(move, urls, options, "nothing was changed")
        with promote.undoable(move, *_posed(move).values()) as keep:
            _change(move, server, options, steps, keep)
    except RequestFailed as error:
        raise _stopped(move, server, steps, error) from None


def _change(move: Move, server: LiveServer, options: smoke.SmokeOptions, steps: _Steps, keep: Keep) -> None:
    """The switch, and the way back if it fails; the files are the caller's to put back."""
    switched = False
    try:
        _load_both(move, server, steps)
        switched = True
        _switch(move, server, options, steps)
        keep()
    except Hung as error:
        # It holds the server's lock on these models: every other load would wait for it.
        steps(f"version {move.old} goes on answering; its files are put back")
        raise _failed(move, f"{error}; version {move.old} goes on answering", RESTART) from None
    except BaseException as error:
        if not server.loader.alive():
            if not isinstance(error, Exception):  # Ctrl-C, or SIGTERM to all of a pod
                raise
            raise _stopped(move, server, steps, error) from None
        steps(f"going back to version {move.old}")
        lost = _back(move, server, switched)
        if lost and isinstance(error, TrbError):
            error.message += f"; and version {move.old} could not be loaded again: {lost}"
        raise


def settle(root: Path, name: str, urls: smoke.Urls, tell: Tell) -> bool:
    """Have the server serve the version that the repository serves; False if it does already.

    A promotion that was killed may have left both versions loaded. Raises ``TrbError`` PROMOTE_FAILED.
    """
    server = LiveServer.at(urls)
    recorded = repository.read(root).manifest or Manifest()
    entry = recorded.endpoints[name]
    served = entry.served.version
    try:
        others = {n for numbers in server.versions(entry.models).values() for n in numbers} - {served}
        if not others and str(served) in server.http.served_versions(name):
            return False
        there = versions.present(root, entry.models)
        others = {number for number in others if number in entry.versions and number in there}
        if not others:
            raise TrbError(
                Code.PROMOTE_FAILED,
                f"the server does not have version {served}, which the repository serves",
                where=urls.http,
                remedy=f"trb load {name}; or start the server again",
            )
        move = promote.between(root, recorded, name, max(others))
        with promote.undoable(move):
            _settle(move, server, _Steps(tell))
    except RequestFailed as error:
        raise TrbError(Code.SERVER_DIED, f"does not answer: {error}", where=urls.http) from None
    return True


def _settle(move: Move, server: LiveServer, steps: _Steps) -> None:
    """Take back what a killed promotion left on the server: the repository is as before already."""
    loaded = server.versions(move.models)
    if not loaded or all(numbers == (move.old,) for numbers in loaded.values()):
        return
    steps(f"the server has another version loaded than the repository serves: back to version {move.old}")
    with promote.undoable(move, *_posed(move).values()):
        if lost := _back(move, server, True):
            raise _failed(move, f"version {move.old} could not be loaded again: {lost}", RESTART)


def _stopped(move: Move, server: LiveServer, steps: _Steps, error: BaseException) -> TrbError:
    """The error for a server that ended or answers no more; the repository is put back by then."""
    ended = "ended" if not server.loader.alive() else f"does not answer ({error})"
    return _failed(
        move,
        f"the server {ended} during '{steps.last}'; the repository serves version {move.old}, as before",
        "see the server's log; start the server again, then run the same command again",
    )


def _preflight(move: Move, options: smoke.SmokeOptions, tell: Tell) -> None:
    tell(f"preflight: version {move.new} on a server of its own")
    remedy = f"correct version {move.new} and build it again; --no-preflight leaves this out"
    try:
        bad = preflight.run(move, options)
    except TrbError as error:
        if error.code in preflight.OF_THIS_MACHINE:
            raise
        message = (
            f"version {move.new} does not start on a server of its own, nothing was changed\n{error.message}"
        )
        raise _failed(move, message, remedy) from None
    if bad is None:
        tell("no preflight: the embedded engine is not installed here")
    elif bad:
        raise _failed(move, smoke.did_not_pass(bad, "on a server of its own; nothing was changed"), remedy)


def _load_both(move: Move, server: LiveServer, tell: Tell) -> None:
    if not move.steps:
        return
    tell(f"{move.name}: steps pinned to version {move.old}")
    promote.write(move, move.name, move.old_files, (move.old,))
    _load(move, server, move.name, (move.old,))
    for step in move.steps:
        tell(f"{step}: versions {move.old} and {move.new}")
        promote.write(move, step, move.new_files, sorted((move.old, move.new)))
        _load(move, server, step, (move.old, move.new))


def _switch(move: Move, server: LiveServer, options: smoke.SmokeOptions, tell: Tell) -> None:
    tell(f"{move.name}: version {move.new}")
    promote.write(move, move.name, move.new_files, (move.new,))
    _load(move, server, move.name, (move.new,))
    manifest.write(move.root, promote.promoted(move))
    tell(f"smoke: version {move.new}")
    _prove(move, server.urls, options, f"version {move.old} serves again")
    for step in move.steps:
        promote.write(move, step, move.new_files, (move.new,))
        _load(move, server, step, (move.new,))
    tell(f"version {move.old} is unloaded")


def _back(move: Move, server: LiveServer, switched: bool) -> str:
    """Undo, as far as the server lets us; what could not be loaded."""
    try:
        return _go_back(move, server, switched)
    except RequestFailed as error:
        return str(error)


def _go_back(move: Move, server: LiveServer, switched: bool) -> str:
    if switched and move.steps:
        for step in move.steps:
            promote.write(move, step, move.new_files, sorted((move.old, move.new)))
            _again(server, step)
        promote.write(move, move.name, move.old_files, (move.old,))
        _again(server, move.name)
    lost = []
    for model in (*move.steps, move.name):
        promote.write(move, model, move.old_files, (move.old,))
        lost += [_again(server, model), _forget(move, server, model)]
    return "; ".join(dict.fromkeys(text for text in lost if text))


def _forget(move: Move, server: LiveServer, model: str) -> str:
    """Have the server forget that the new version failed; what went wrong with that.

    A server with a failed version reports that it is not ready, even if others answer, until a version of
    that number was loaded. So the old one's files are, for a moment, under the new number.
    """
    index = server.http.index_or_empty()
    if not any(entry.failed and (entry.name, entry.version) == (model, str(move.new)) for entry in index):
        return ""
    promote.write(move, model, {**move.old_files, **_posed(move)[model]}, sorted((move.old, move.new)))
    reason = _again(server, model)
    promote.write(move, model, move.old_files, (move.old,))
    return _again(server, model) or reason


def _posed(move: Move) -> dict[str, dict[str, bytes]]:
    """For each model its config.pbtxt with which the old version's file is loaded under the new number."""
    posed = {}
    for model in move.models:
        path = f"{model}/{CONFIG}"
        file = FILES.get(ModelConfig(pbtxt.parse(move.old_files[path].decode())).backend)
        instead = f'default_model_filename: "../{move.old}/{file}"\n' if file else ""
        posed[model] = {path: move.old_files[path] + instead.encode()}
    return posed


def _again(server: LiveServer, model: str) -> str:
    try:
        reason = server.loader.load(model, LOAD_TIMEOUT)
        server.http.wait_until_settled(model, DRAIN)
        return reason
    except (OSError, Hung) as error:  # on the way back nothing may stop the rest
        return f"{model}: {error}"


def _load(move: Move, server: LiveServer, model: str, numbers: tuple[int, ...]) -> None:
    """Load, and see that the server has these versions: else it runs from another repository.

    Returns once what is unloaded has answered its last request: until then the server is not ready.
    """
    try:
        reason = server.loader.load(model, LOAD_TIMEOUT)
        states = server.http.wait_until_settled(model, DRAIN)
    except OSError as error:
        raise _failed(
            move, f"the server did not answer while {model} was loaded: {error}", "see the server's log"
        ) from None
    if reason:
        raise _failed(move, f"{model} could not be loaded: {reason}", "see the server's log")
    if missing := [number for number in numbers if states.get(number) != "READY"]:
        raise _failed(
            move,
            f"the server has no version {missing[0]} of {model} after loading it",
            f"start it from this repository, in explicit mode ('trb serve {move.root}' does), and try again",
        )


def _prove(move: Move, urls: smoke.Urls, options: smoke.SmokeOptions, state: str) -> None:
    if bad := failures(smoke.run(urls, repository.read(move.root), options)):
        remedy = f"see 'trb smoke {move.root} --url {urls.http}', correct the version, build it again"
        raise _failed(move, smoke.did_not_pass(bad, state), remedy)


def failures(report: smoke.SmokeReport) -> list[smoke.Check]:
    """The checks that say something against an endpoint on a server that others use, too."""
    bad = [c for c in report.checks if c.status in (smoke.Status.FAILED, smoke.Status.UNVERIFIED)]
    return [c for c in bad if c.group != COUNTED and not (c.group == "server" and c.name in OTHERS)]


def _failed(move: Move, message: str, remedy: str) -> TrbError:
    return TrbError(Code.PROMOTE_FAILED, message, where=move.name, remedy=remedy)
