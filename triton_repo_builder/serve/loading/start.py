"""From a server that answers to one whose models are all ready and watched; the same for every engine.

Servers run in explicit mode and ``trb`` loads each endpoint over HTTP. The alternative, loading at start,
gives an HTTP endpoint only after the last model, hence no reason for a failure and no way to notice a load
that hangs; and only explicit mode allows a model to be loaded again when its Python process died.
"""

from __future__ import annotations

import time
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.client import HttpClient
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.repository import Repository
from triton_repo_builder.serve.engine import Failure, Progress, ServeOptions
from triton_repo_builder.serve.loading import (
    failure_causes,
    failure_hints,
    load_models,
    select,
)
from triton_repo_builder.serve.loading.select import Targets
from triton_repo_builder.serve.managed_server import Handle
from triton_repo_builder.serve.processes.watchdog import Watch

TICK = 0.02


def read(path: Path, options: ServeOptions, tell: Progress) -> tuple[Repository, Targets]:
    """What is to be loaded. Raises ``TrbError`` where that is nothing."""
    repo = repository.read(path)
    chosen = select.choose(repo, options.models)
    for name in chosen.strangers:
        tell(f"warning: {name}/ is no model (it has no config.pbtxt and no version directory): not loaded")
    if not options.models_url:
        _check_fetched(repo, chosen)
    if chosen.failures and not chosen.load:
        raise _failed(chosen.failures)
    return repo, chosen


def _check_fetched(repo: Repository, chosen: Targets) -> None:
    """``TrbError`` NOT_FOUND where files lie elsewhere that what is to be loaded needs."""
    recorded = (repo.manifest or {}).get("files", {})
    missing = [
        path
        for path, fact in recorded.items()
        if "url" in fact and path.split("/")[0] in chosen.members and not (repo.path / path).is_file()
    ]
    if missing:
        raise TrbError(
            Code.NOT_FOUND,
            f"is not here: it lies at {recorded[missing[0]]['url']}"
            + (f", and {len(missing) - 1} more files elsewhere, too" if missing[1:] else ""),
            where=str(repo.path / missing[0]),
            remedy=f"get it first: trb fetch {repo.path}",
        )


def log_file(options: ServeOptions, folder: Path) -> Path:
    """Where the server's output goes, empty at first."""
    if options.log_file is None:
        return folder / "server.log"
    try:
        options.log_file.write_bytes(b"")
    except OSError as error:
        raise TrbError(
            Code.OUTPUT_NOT_WRITABLE,
            f"cannot be written: {error.strerror}",
            where=str(options.log_file),
            remedy="name a file in an existing folder of yours with --log-file",
        ) from None
    return options.log_file.resolve()


def is_up(server: Handle, patience: float) -> bool:
    """Wait for the HTTP endpoint; False where the server ended, ``TrbError`` after ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while server.alive():
        if HttpClient(server.urls.http, 2).answers_ready():
            return True
        if time.monotonic() > deadline:
            raise TrbError(
                Code.TIMED_OUT,
                f"tritonserver does not answer at {server.urls.http}",
                remedy=f"the server's output is in {server.keep_log()}",
            )
        time.sleep(TICK)
    return False


def bring_up(
    server: Handle, repo: Repository, chosen: Targets, options: ServeOptions, tell: Progress
) -> None:
    """Load everything and start watching; stop the server and raise ``TrbError`` where that fails."""
    try:
        _load(server, repo, chosen, options, tell)
    except BaseException as error:
        if isinstance(error, TrbError):
            server.keep_log()
        server.stop(hurry=True)
        raise
    server.watch(
        lambda fail: Watch(
            server.urls.http,
            server.stubs,
            needing=lambda name: _now(repo).needing(name),
            alive=server.alive,
            progress=tell,
            fail=fail,
            timeout=options.load_timeout,
        )
    )


def _now(repo: Repository) -> Repository:
    """The repository as it is by now: models that were built since may be loaded since."""
    try:
        return repository.read(repo.path)
    except TrbError:
        return repo


def _load(server: Handle, repo: Repository, chosen: Targets, options: ServeOptions, tell: Progress) -> None:
    """Load everything; raise one error that names every model that failed."""
    loaded = load_models.load(
        server.urls.http,
        chosen.load,
        server.stubs,
        timeout=options.load_timeout,
        alive=server.alive,
        progress=tell,
        total=len(chosen.members),
    )
    if not server.alive():
        raise _ended(server)
    known = (*chosen.failures, *(failure_causes.explained(failure, server.log) for failure in loaded.hung))
    hanging = {name for failure in loaded.hung for name in failure.model.split(", ")}
    try:
        states = {} if loaded.ok else HttpClient(server.urls.http, 10).states()
    except OSError:  # it ended just now
        raise _ended(server) from None
    failed = failure_causes.failures(
        repo, loaded.answers, states, failure_causes.read(server.log), known, loaded.ends
    )
    late = [name for name in loaded.unfinished if name not in hanging]
    if failed:
        raise _failed(failed, server.keep_log())
    if late:
        raise TrbError(
            Code.TIMED_OUT,
            f"not ready after {options.load_timeout:g} s: {', '.join(late)}",
            remedy=f"allow more time with --timeout, or see what they do in {server.keep_log()}",
        )


def _ended(server: Handle) -> TrbError:
    """A failing warm-up may end tritonserver 2.51.0: then the model is what is wrong, not the server."""
    failed = failure_causes.warmups(failure_causes.read(server.log))
    return _failed(failed, server.keep_log()) if failed else server.died()


def _failed(failed: tuple[Failure, ...], log: Path | None = None) -> TrbError:
    count = "a model" if len(failed) == 1 else f"{len(failed)} models"
    return TrbError(
        Code.MODEL_FAILED,
        f"{count} cannot be loaded, no server is left running\n{failure_causes.listed(failed)}",
        remedy=failure_hints.of(
            failed, "correct that and start again; 'trb check' finds most causes without a server"
        )
        + (f"; the server's whole log is {log}" if log else ""),
    )
