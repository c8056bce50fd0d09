"""Load and unload models of a server that already runs."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit

from triton_repo_builder import repository
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Repository, composition
from triton_repo_builder.run.client import HttpClient, NoAnswer, admin_key
from triton_repo_builder.run.client.values import LOOPBACK
from triton_repo_builder.run.serve.background import registry
from triton_repo_builder.run.serve.loading import clear_failed, failure_causes, load_models
from triton_repo_builder.run.serve.loading.load_models import Loaded
from triton_repo_builder.run.serve.processes import proc
from triton_repo_builder.run.serve.processes.stubs import StubProcesses, model_of_instance

_NOBODYS = "trb.asks.whether.you.unload.on.request"
REFUSED = "explicit model load / unload is not allowed"
TICK = 0.05
HTTP_PORT = 8000
"""tritonserver's default."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running server, with process, repository and log if it runs on this machine."""

    base: str
    pid: int = 0
    repository: Repository = Repository(path=Path(), models=(), manifest=None)  # noqa: RUF009  frozen
    log: Path | None = None
    """The file of its standard error."""
    files: Path | None = None
    """Folder of its models, as this process reaches it; None if unknown."""
    started: float = 0.0
    """Seconds since 1970; 0 if unknown."""

    def folder(self, model: str) -> Path:
        """The model's directory, if the repository is known."""
        return self.repository.path / model

    def alive(self) -> bool:
        """Whether its process runs, if that is known."""
        return not self.pid or proc.exists(self.pid)

    def processes(self) -> StubProcesses:
        """Python processes of the server; none if the server's process is unknown."""
        # Paths as the server has them in the arguments of its stubs: not resolved.
        return StubProcesses(self.pid, str(self.repository.path))

    def loaded(self, model: str, version: int) -> float:
        """When the processes of a Python model began, in seconds since 1970; 0 for a model that has none."""
        begun: dict[str, float] = {}
        for stub in self.processes().scan():
            if (stub.model, stub.version) == (model, str(version)) and not stub.dead:
                # After another load the old process of an instance may still be ending.
                begun[stub.instance] = max(begun.get(stub.instance, 0.0), proc.started(stub.pid))
        return min(begun.values(), default=0.0)

    def brought(self, model: str) -> str:
        """The file that a process of this model runs, if outside of the repository; else an empty text.

        A load request can bring the model's files; the server then keeps them in a folder of its own.
        """
        root = self.repository.path
        stubs = StubProcesses(self.pid, str(root), model_of_instance(self.repository)).scan()
        # After another load the old process of an instance may still be ending.
        latest = {s.place: s.file for s in sorted(stubs, key=lambda s: s.started) if s.model == model}
        return next((file for file in latest.values() if file and not Path(file).is_relative_to(root)), "")


def find(url: str) -> Server:
    """The server at ``url``. Raises ``TrbError`` UNREACHABLE."""
    base = url.rstrip("/") if "://" in url else f"http://{url.rstrip('/')}"
    try:
        HttpClient(base, 10).live()
    except (NoAnswer, ValueError) as error:
        raise TrbError(
            Code.UNREACHABLE,
            f"no server answers: {error}",
            where=base,
            remedy="start one with 'trb serve', or name another with --url (its HTTP address)",
        ) from None
    for entry in registry.sweep()[0]:
        if entry.container and entry.urls["http"] == base:
            if "://" in entry.repository:  # pulled from there; only that trb has the files
                return Server(base=base, log=Path(entry.log))
            # Its process is hidden behind Docker's proxy; only the registry's entry is known.
            return Server(
                base=base,
                repository=repository.read(Path(entry.repository)),
                log=Path(entry.log),
                files=Path(entry.repository),
                started=entry.started,
            )
    parts = urlsplit(base)
    pid = proc.listener(parts.port or 80) if parts.hostname in (*LOOPBACK, "0.0.0.0") else 0
    argv = proc.arguments(pid) if pid else []
    path = _repository(argv)
    if not path:
        return Server(base=base)
    files = proc.path(pid, path) if "://" not in path else None
    started = proc.started(pid)
    try:
        repo = repository.read(Path(path))
    except TrbError:
        return Server(base=base, files=files, started=started)
    return Server(base=base, pid=pid, repository=repo, log=proc.error_file(pid), files=files, started=started)


def _repository(argv: Sequence[str]) -> str:
    """The repository in the command line of a tritonserver; empty if there is none."""
    return proc.option(argv, "--model-repository") or proc.option(argv, "--model-store")


def address(folder: Path) -> str:
    """HTTP address of a server on this machine that runs this repository; empty if none does."""
    resolved = folder.resolve()
    with suppress(TrbError):  # without a folder of states no server is in the background
        for entry in registry.unswept():
            if "://" not in entry.repository and Path(entry.repository).resolve() == resolved:
                return entry.urls["http"]
    for pid in proc.pids():
        argv = proc.arguments(pid)
        path = _repository(argv) if Path(argv[0] if argv else "").name == "tritonserver" else ""
        if path and "://" not in path and proc.path(pid, path).resolve() == resolved:
            return f"http://127.0.0.1:{proc.option(argv, '--http-port') or HTTP_PORT}"
    return ""


def load(server: Server, names: Sequence[str], *, timeout: float) -> None:
    """Load models and their steps. Raises ``TrbError`` with the cause of each failure."""
    _check_known(server, names)
    since = server.log.stat().st_size if server.log else 0
    loaded = _load(server, server.processes(), names, timeout)
    if loaded.ok:
        return
    for answer in loaded.answers.values():
        _check_explicit(server, answer)
    if not server.alive():
        failed = failure_causes.listed(
            failure_causes.warmups(failure_causes.read(server.log, since) if server.log else "")
        )
        raise TrbError(
            Code.SERVER_DIED,
            "tritonserver ended while it loaded" + (f"\n{failed}" if failed else ""),
            where=server.base,
            remedy=f"see its output in {server.log}" if server.log else "see its output",
        )
    raise _failed(server, names, loaded, since)


class Hung(Exception):
    """Raised if a model's Python process ended while it started: the load never ends."""


class Loader:
    """Loads one model at a time on a running server. Raises ``TrbError`` UNREACHABLE without a server."""

    def __init__(self, base: str) -> None:
        self._server = find(base)
        self._stubs = self._server.processes()

    def alive(self) -> bool:
        """Whether the server's process runs, or it answers if that is unknown."""
        return self._server.alive() and HttpClient(self._server.base, 10).answers_live()

    def load(self, model: str, timeout: float) -> str:
        """The server's reason if the load fails, else an empty text. Raises ``Hung``, OSError."""
        if not self._server.pid:
            return HttpClient(self._server.base, timeout).load(model)
        loaded = _load(self._server, self._stubs, (model,), timeout)
        if loaded.hung:
            raise Hung("; ".join(f"{failure.model}: {failure.cause}" for failure in loaded.hung))
        if not self._server.alive():
            raise ConnectionError("it ended")
        if loaded.unfinished:
            raise TimeoutError(f"no answer within {timeout:g} s")
        return failure_causes.with_end(loaded.answers[model], model, loaded.ends)

    def loading(self, models: Collection[str]) -> str:
        """The first version of these models that the server is still loading; empty if there is none."""
        return next(
            (
                f"version {entry.version} of {entry.name}"
                for entry in HttpClient(self._server.base, 10).index_or_empty()
                if entry.name in models and entry.state == "LOADING"
            ),
            "",
        )


def _load(server: Server, stubs: StubProcesses, names: Sequence[str], timeout: float) -> Loaded:
    """Load on a server that may already have dead stubs."""
    return load_models.load(
        server.base,
        tuple(names),
        stubs,
        timeout=timeout,
        alive=server.alive,
        progress=lambda text: None,
        ignore=frozenset(stub.pid for stub in stubs.scan() if stub.dead),
    )


def _failed(server: Server, names: Sequence[str], loaded: Loaded, since: int) -> TrbError:
    states = {
        name: state
        for name, state in HttpClient(server.base, 10).states().items()
        if name in _members(server, names)
    }
    text = failure_causes.read(server.log, since) if server.log else ""
    if not loaded.hung:
        clear_failed.failures(server.base, states)
    failures = tuple(failure_causes.explained(f, server.log, since) if server.log else f for f in loaded.hung)
    failed = failure_causes.failures(server.repository, loaded.answers, states, text, failures, loaded.ends)
    if not failed:
        late = ", ".join(loaded.unfinished)
        return TrbError(
            Code.TIMED_OUT,
            f"not loaded in time: {late}",
            where=server.base,
            remedy="allow more with --timeout",
        )
    remedy = failure_causes.remedy(failed, "correct that and load it again")
    if loaded.hung:
        remedy = "this server never ends that load: correct the model and start the server again"
    elif not server.log and any("failed to poll" in failure.cause for failure in failed):
        remedy = "the reason is in the server's log; 'trb check' on the repository finds most causes"
    return TrbError(
        Code.MODEL_FAILED,
        f"{'a model' if len(failed) == 1 else f'{len(failed)} models'} cannot be loaded\n"
        + failure_causes.listed(failed),
        where=server.base,
        remedy=remedy,
    )


def unload(server: Server, name: str, *, timeout: float) -> bool:
    """Unload a model and steps that no other model needs, and wait; False if it was not loaded."""
    _check_known(server, (name,))
    http = HttpClient(server.base, timeout)
    before = http.ready_models()
    answer = http.unload(name, steps=True)
    _check_explicit(server, answer)
    if answer:
        raise TrbError(
            Code.MODEL_FAILED, f"cannot be unloaded: {answer}", where=name, remedy="see the server's log"
        )
    deadline = time.monotonic() + timeout
    members = _members(server, (name,))
    while any(
        entry.state == "UNLOADING" or (entry.name, entry.state) == (name, "READY")
        for entry in http.index_or_empty()
        if entry.name in members
    ):
        if time.monotonic() > deadline:
            raise TrbError(
                Code.TIMED_OUT,
                f"is not unloaded after {timeout:g} s",
                where=name,
                remedy="requests may still run; allow more time with --timeout",
            )
        time.sleep(TICK)
    return name in before


def _check_known(server: Server, names: Sequence[str]) -> None:
    # A server may keep its index to itself.
    failures = tuple(dict.fromkeys(entry.name for entry in HttpClient(server.base, 10).index_or_empty()))
    for name in names:
        if failures and name not in failures:
            near = get_close_matches(name, failures, 1)
            raise TrbError(
                Code.NOT_FOUND,
                f"the server's repository has no model '{name}'",
                where=server.base,
                remedy=f"did you mean '{near[0]}'?" if near else "see what it has with: trb status",
            )


def require_explicit(server: Server) -> None:
    """Raise NOT_EXPLICIT unless the server loads models on request, before a file is changed.

    A polling server would load the unfinished files. The check unloads a model that does not exist.
    """
    answer = HttpClient(server.base, 10).unload(_NOBODYS)
    admin_key.refuse_other(server.base, answer)
    _check_explicit(server, answer)


def _check_explicit(server: Server, answer: str) -> None:
    if REFUSED in answer:
        raise TrbError(
            Code.NOT_EXPLICIT,
            "this server does not load or unload models on request",
            where=server.base,
            remedy="start it with --model-control-mode=explicit, as trb serve does",
        )


def _members(server: Server, names: Sequence[str]) -> set[str]:
    """The models and all their steps."""
    return set(composition.members(names, server.repository.steps_of))
