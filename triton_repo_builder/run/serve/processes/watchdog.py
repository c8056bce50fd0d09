"""Watch a running server: reload a model whose stub died, and report a reload that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Repository
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.serve.engine import Progress
from triton_repo_builder.run.serve.loading import load_models
from triton_repo_builder.run.serve.processes.stubs import ProcessLister, Stub

SETTLE = 0.75
"""A stub that ends because its model is unloaded is a zombie only for a moment; ``dead`` means longer."""
RELOADS = 3
WINDOW = 60.0
AGAIN = 2.0
"""Seconds before a failed reload is retried; doubled for each further retry."""
UNLOAD = 5.0
"""Time limit in seconds of an unload; then the model is loaded again anyway."""
DECIDED = 10.0
"""Seconds after which a dead stub that no loaded model needs is forgotten: a promote ends within that."""
LOOK = 10.0
"""Seconds between two scans for leftovers."""
LEFTOVER = 30.0
"""Seconds after which a stub that no loaded model uses is killed: a hung unload has left it running."""
UNSEEN = "seen only after its end"
"""In place of the instance of such a stub."""
COLLECTED = "collected by the server"
"""In place of how such a process ended."""
LOADED = ("READY", "LOADING", "UNLOADING")


class Watchdog(threading.Thread):
    """Reloads models until stopped; calls ``on_failure`` once, with the reason, if it gives up."""

    def __init__(
        self,
        base: str,
        stubs: ProcessLister,
        *,
        repository: Callable[[], Repository],
        alive: Callable[[], bool],
        progress: Progress,
        on_failure: Callable[[TrbError], None],
        timeout: float,
    ) -> None:
        super().__init__(name="trb-watch", daemon=True)
        self._base = base
        self._stubs = stubs
        self._repository = repository
        self._alive = alive
        self._progress = progress
        self._on_failure = on_failure
        self._timeout = timeout
        self._stopping = threading.Event()
        self._handled: set[int] = set()
        self._leftovers: dict[int, float] = {}
        """Time at which each was first seen unused."""
        self._looked_at: tuple[float, frozenset[int]] = (0.0, frozenset())
        self._listed: dict[int, Stub] = {}
        """The processes of the last scan whose model is known."""
        self._vanished: dict[int, tuple[Stub, float]] = {}
        """Processes that are no longer listed, and since when."""
        self._reloads: dict[str, tuple[int, float]] = {}
        """Number of reloads of a model, each within WINDOW of the one before, and the time of the last."""

    def stop(self) -> None:
        """Stop soon, without another reload."""
        self._stopping.set()

    def run(self) -> None:
        """Scan the processes once and reload models as needed."""
        first_seen: dict[int, float] = {}
        while not self._stopping.wait(self._stubs.tick):
            if not self._alive():
                return
            now = time.monotonic()
            stubs = self._stubs.scan()
            dead = [stub for stub in stubs if stub.dead and stub.pid not in self._handled]
            first_seen = {stub.pid: first_seen.get(stub.pid, now) for stub in dead}
            settled = [stub for stub in dead if now - first_seen[stub.pid] >= SETTLE]
            try:
                self._kill_leftovers(stubs, now)
                self._restore_all([*settled, *self._collected(stubs, now)], stubs)
            except OSError:
                continue  # no answer: the server is busy, or has ended, which its owner reports
            except TrbError as error:
                if not self._stopping.is_set() and self._alive():
                    self._on_failure(error)
                return
            self._handled |= {pid for pid, seen in first_seen.items() if now - seen >= DECIDED}

    def _restore_all(self, settled: list[Stub], stubs: tuple[Stub, ...]) -> None:
        if unseen := [stub for stub in settled if not stub.model]:
            settled = [*(stub for stub in settled if stub.model), *self._named(unseen[-1])]
        for model in dict.fromkeys(stub.model for stub in settled):
            self._restore(model, [stub for stub in settled if stub.model == model], stubs)

    def _collected(self, stubs: tuple[Stub, ...], now: float) -> list[Stub]:
        """Processes that disappeared before they had been dead for ``SETTLE``, of models that are not ready.

        A server that asks for its processes (release 26.01 and later) may collect a dead one before that. The
        model itself is asked, for an ensemble above it still says that it is ready.
        """
        now_listed = {stub.pid: stub for stub in stubs if stub.model}
        for pid in self._listed.keys() - now_listed.keys():
            self._vanished[pid] = replace(self._listed[pid], dead=True, end=COLLECTED), now
        self._listed = now_listed
        self._vanished = {
            pid: (stub, since)
            for pid, (stub, since) in self._vanished.items()
            if now - since < DECIDED and pid not in self._handled
        }
        settled = [stub for stub, since in self._vanished.values() if now - since >= SETTLE]
        http = HttpClient(self._base, 10)
        unready = {model for model in {stub.model for stub in settled} if not http.ready(model)}
        return [stub for stub in settled if stub.model in unready]

    def _named(self, unseen: Stub) -> list[Stub]:
        """A stub that died before it was seen alive, under each model that is ready without any process."""
        repository = self._repository()
        entries = HttpClient(self._base, 10).index_or_empty()
        stubs = self._stubs.scan()  # after the index: a model that became ready just now has its process
        alive = {(stub.model, stub.version) for stub in stubs if not stub.dead}
        backends = {"python", *(_backend(repository, stub.model) for stub in stubs if stub.model)}
        return [
            replace(unseen, model=entry.name, version=entry.version, instance=UNSEEN)
            for entry in entries
            if entry.ready
            and _backend(repository, entry.name) in backends
            and (entry.name, entry.version) not in alive
        ]

    def _restore(self, model: str, dead: list[Stub], stubs: tuple[Stub, ...]) -> None:
        entries = HttpClient(self._base, 10).index_or_empty()
        ready_now = {(entry.name, entry.version) for entry in entries if entry.ready}
        dead = lost(dead, stubs, ready_now)
        if not dead:
            return  # unloaded or replaced on purpose, or still loading: that request gets the error
        self._handled |= {stub.pid for stub in dead}
        loaded = {name for name, _ in ready_now}
        ends = ", ".join(f"{stub.instance}: {stub.end}" for stub in dead)
        count, last = self._reloads.get(model, (0, 0.0))
        count = count + 1 if time.monotonic() - last < WINDOW else 1
        if count > RELOADS:
            raise TrbError(
                Code.MODEL_FAILED,
                f"its Python process died again ({ends}) after {RELOADS} reloads, each within {WINDOW:.0f} s "
                "of the one before",
                where=model,
                remedy="correct the model (memory, native libraries, os._exit), then start again",
            )
        self._progress(
            f"model '{model}' lost its Python process ({ends}); loading it again ({count} of {RELOADS})"
        )
        above = tuple(other for other in self._repository().needing(model) if other in loaded)
        while True:
            try:
                self._reload(model, stubs, above)
                break
            except TrbError as error:
                # On a busy machine a new process may not answer Triton in time.
                if count >= RELOADS or self._stopping.wait(AGAIN * count) or not self._alive():
                    raise
                count += 1
                self._progress(f"{error.message}; loading '{model}' again ({count} of {RELOADS})")
                stubs = self._stubs.scan()
        # From its end: on a busy machine a reload takes as long as the window.
        self._reloads[model] = count, time.monotonic()
        self._progress(f"model '{model}' is ready again")

    def _reload(self, model: str, stubs: tuple[Stub, ...], above: tuple[str, ...]) -> None:
        """Unload and load: a load alone does nothing if the files have not changed.

        ``above`` are the loaded ensembles that need the model.
        """
        before = [stub for stub in stubs if stub.model == model]
        answer = HttpClient(self._base, self._timeout).unload(model)
        if answer:
            raise TrbError(
                Code.MODEL_FAILED, f"cannot be unloaded after its process died: {answer}", where=model
            )
        # This Triton may crash if it loads what it still unloads; an unload that hangs never ends.
        HttpClient(self._base, self._timeout).wait_until_settled(model, UNLOAD)
        # A step that was loaded by name would stay when the ensemble is unloaded later.
        loaded = load_models.load(
            self._base,
            above or (model,),
            self._stubs,
            timeout=self._timeout,
            alive=self._alive,
            progress=lambda text: None,
            ignore=frozenset(self._handled | {stub.pid for stub in before}),
        )
        if not loaded.ok:
            causes = [f.cause for f in loaded.hung] + [text for text in loaded.answers.values() if text]
            raise TrbError(
                Code.MODEL_FAILED,
                f"could not be loaded again: {'; '.join(causes) or 'no answer in time'}",
                where=model,
                remedy="see the server's log, correct the model, then start again",
            )
        self._handled |= {stub.pid for stub in before}

    def _kill_leftovers(self, stubs: tuple[Stub, ...], now: float) -> None:
        """Free the memory of processes that no loaded model uses.

        A model that got a request after its process died never finishes unloading, and an instance may
        outlive a finished unload. The server is asked only after some process came or went.
        """
        when, before = self._looked_at
        alive = frozenset(stub.pid for stub in stubs if not stub.dead)
        if now - when < LOOK or (alive == before and not self._leftovers):
            return
        self._looked_at = now, before
        entries = HttpClient(self._base, 10).index_or_empty()
        self._looked_at = now, alive
        if not entries:
            return
        loaded = {(entry.name, entry.version) for entry in entries if entry.state in LOADED}
        idle = {stub.pid for stub in unused(stubs, loaded)}
        self._leftovers = {pid: self._leftovers.get(pid, now) for pid in idle}
        for pid, since in self._leftovers.items():
            if now - since > LEFTOVER:
                self._handled.add(pid)
                self._stubs.kill(pid)


def _backend(repository: Repository, name: str) -> str:
    model = repository.model(name)
    return model.backend if model else ""


def unused(stubs: Iterable[Stub], loaded: Collection[tuple[str, str]]) -> list[Stub]:
    """Living stubs of versions that are not loaded, or that a later stub replaced."""
    last = _last(stubs)
    return [
        stub
        for stub in stubs
        if not stub.dead
        and stub.model
        and stub.instance != stub.model
        and ((stub.model, stub.version) not in loaded or last[stub.place] > stub.started)
    ]


def lost(dead: Iterable[Stub], stubs: Iterable[Stub], ready_now: Collection[tuple[str, str]]) -> list[Stub]:
    """Dead stubs that ended neither by an unload nor by a reload.

    A stub ends on purpose when its version is unloaded (another version may well be ready), when another
    took its place because the same version was loaded again, and when it had only completed a configuration
    (its instance is the model's name). One that is older and still lives took nothing: it is a leftover.
    """
    last = _last(stub for stub in stubs if not stub.dead)
    return [
        stub
        for stub in dead
        if (stub.model, stub.version) in ready_now
        and last.get(stub.place, -1) < stub.started
        and stub.instance != stub.model
    ]


def _last(stubs: Iterable[Stub]) -> dict[tuple[str, str, str], int]:
    """Start of the last process of each place."""
    last: dict[tuple[str, str, str], int] = {}
    for stub in stubs:
        last[stub.place] = max(last.get(stub.place, 0), stub.started)
    return last
