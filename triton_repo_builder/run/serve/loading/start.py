"""Load all models of a started server and watch them, for every engine.

Servers run in explicit mode and ``trb`` loads each endpoint over HTTP. The alternative, loading at start,
gives an HTTP endpoint only after the last model, hence no reason for a failure and no way to notice a load
that hangs; and only explicit mode allows a model to be loaded again when its Python process died.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Repository
from triton_repo_builder.run.client import HttpClient, RequestFailed
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.run.serve.engine import Failure, Progress
from triton_repo_builder.run.serve.loading import (
    failure_causes,
    load_models,
    release_fit,
    select,
)
from triton_repo_builder.run.serve.loading.select import Targets
from triton_repo_builder.run.serve.managed_server import Log, ManagedServer
from triton_repo_builder.run.serve.processes.watchdog import Watchdog

TICK = 0.02
AS_THEY_STAND = "--disable-auto-complete-config"
CACHES = ("--cache-config", "--response-cache")
CACHE = 64 << 20
"""Bytes of the response cache of all models: 40,000 embeddings of 384 numbers."""


def read(path: Path, options: ServeOptions, tell: Progress) -> tuple[Repository, Targets]:
    """The repository and the models to load. Raises ``TrbError`` if there are none."""
    repo = repository.read(path)
    chosen = select.choose(repo, options.models)
    for name in chosen.not_models:
        tell(f"warning: {name}/ is not a model (no config.pbtxt, no version directory): not loaded")
    if not options.models_url:
        _check_fetched(repo, chosen)
    if chosen.failures and not chosen.load:
        raise _failed(chosen.failures)
    return repo, chosen


def _check_fetched(repo: Repository, chosen: Targets) -> None:
    """Raise ``TrbError`` LFS_POINTER or NOT_FOUND if files of these models are not in this clone."""
    recorded = repo.manifest.files if repo.manifest else {}
    missing = [
        path
        for path, record in recorded.items()
        if record.url and path.split("/")[0] in chosen.members and not (repo.path / path).is_file()
    ]
    pointers = _pointers(repo, chosen)
    if pointers:
        shown = ", ".join(pointers[:3]) + (f" and {len(pointers) - 3} more" if len(pointers) > 3 else "")
        raise TrbError(
            Code.LFS_POINTER,
            f"pointers of git LFS instead of the files: {shown}",
            where=str(repo.path),
            remedy="get them with: git lfs install && git lfs pull"
            + (f", and the files stored elsewhere with: trb fetch {repo.path}" if missing else ""),
        )
    if missing:
        raise TrbError(
            Code.NOT_FOUND,
            f"was not fetched: it is stored at {recorded[missing[0]].url}"
            + (f" (and {len(missing) - 1} more files are not here)" if missing[1:] else ""),
            where=str(repo.path / missing[0]),
            remedy=f"get it first: trb fetch {repo.path}",
        )


def _pointers(repo: Repository, chosen: Targets) -> list[str]:
    """Pointers below the models to load, except in versions that are not served."""
    pointers = []
    for model in repo.models:
        if model.name not in chosen.members:
            continue
        idle = {str(version) for version in model.versions} - {str(version) for version in model.selected}
        for file in sorted(model.path.rglob("*")):
            name = file.relative_to(model.path)
            if name.parts[0] in idle or not file.is_file() or file.stat().st_size > files.LFS_POINTER_SIZE:
                continue
            with suppress(OSError), file.open("rb") as stream:  # the server names what it cannot read
                if files.is_lfs_pointer(stream.read(len(files.LFS_POINTER))):
                    pointers.append(str(file.relative_to(repo.path)))
    return pointers


def as_written(repo: Repository, options: ServeOptions) -> ServeOptions:
    """Keep the server from completing configurations, if ``trb`` wrote all of them.

    To complete one, tritonserver starts each Python model in a process that it then throws away.
    """
    if AS_THEY_STAND in options.extra or not all(model.complete for model in repo.models if model.stated):
        return options
    return replace(options, extra=(*options.extra, AS_THEY_STAND))


def with_model_needs(repo: Repository, chosen: Targets, options: ServeOptions) -> ServeOptions:
    """Add what loaded models use and a server has not by default: a response cache, latency histograms."""
    options = release_fit.with_histograms(repo, chosen, options)
    cached = [model for model in repo.models if model.name in chosen.members and model.config.cached]
    if not cached or any(option.startswith(CACHES) for option in options.extra):
        return options
    return replace(options, extra=(*options.extra, f"--cache-config=local,size={CACHE}"))


def log_file(options: ServeOptions, folder: Path) -> Log:
    """The file for the server's output, emptied unless the options say to append to it."""
    if options.log_file is None:
        return Log(path=folder / "server.log")
    try:
        start = _prepare(options.log_file, append=options.log_append)
    except OSError as error:
        raise TrbError(
            Code.OUTPUT_NOT_WRITABLE,
            "is a link in a folder that everybody may write to: another user may have put it there"
            if error.errno == errno.ELOOP
            else f"cannot be written: {error.strerror}",
            where=str(options.log_file),
            remedy="name a file in an existing folder of yours with --log-file",
        ) from None
    return Log(path=options.log_file.resolve(), start=start)


def _prepare(log: Path, *, append: bool) -> int:
    """Create or empty a file of the user; return its size. In /tmp a link may be another user's."""
    mode = log.parent.stat().st_mode
    shared = mode & stat.S_ISVTX and mode & stat.S_IWOTH
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_NOFOLLOW if shared else 0)
    held = os.open(log, flags | (os.O_APPEND if append else os.O_TRUNC), 0o666)
    try:
        return os.fstat(held).st_size
    finally:
        os.close(held)


def is_up(server: ManagedServer, patience: float) -> bool:
    """Wait for the HTTP endpoint; False if the server ended, ``TrbError`` after ``patience`` seconds."""
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
    server: ManagedServer, repo: Repository, chosen: Targets, options: ServeOptions, tell: Progress
) -> None:
    """Load everything and start the watchdog; stop the server and raise ``TrbError`` if that fails."""
    try:
        _load(server, repo, chosen, options, tell)
    except BaseException as error:
        if isinstance(error, TrbError):
            server.keep_log()
        server.stop(hurry=True)
        raise
    server.watch(
        Watchdog(
            server.urls.http,
            server.stubs,
            repository=lambda: _reread(repo),
            alive=server.alive,
            progress=tell,
            on_failure=server.give_up,
            timeout=options.load_timeout,
        )
    )


def _reread(repo: Repository) -> Repository:
    """The current repository: models that were built since the start may have been loaded, too."""
    try:
        return repository.read(repo.path)
    except TrbError:
        return repo


def _load(
    server: ManagedServer, repo: Repository, chosen: Targets, options: ServeOptions, tell: Progress
) -> None:
    """Load everything; raises one error that names every model that failed."""
    with suppress(OSError, RequestFailed):  # loading tells what is wrong with the server
        for warning in release_fit.warnings(repo, chosen, HttpClient(server.urls.http, 10).version()):
            tell(warning)
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
    failures = (
        *chosen.failures,
        *(failure_causes.explained(failure, server.log, server.log_start) for failure in loaded.hung),
    )
    hanging = {name for failure in loaded.hung for name in failure.model.split(", ")}
    try:
        states = {} if loaded.ok else HttpClient(server.urls.http, 10).states()
    except OSError:  # it ended just now
        raise _ended(server) from None
    failed = failure_causes.failures(repo, loaded.answers, states, server.output(), failures, loaded.ends)
    late = [name for name in loaded.unfinished if name not in hanging]
    if failed:
        raise _failed(failed, server.keep_log())
    if late:
        raise TrbError(
            Code.TIMED_OUT,
            f"not ready after {options.load_timeout:g} s: {', '.join(late)}",
            remedy=f"allow more time with --timeout, or see what they do in {server.keep_log()}",
        )


def _ended(server: ManagedServer) -> TrbError:
    """A failing warm-up may end tritonserver 2.51.0: then the error is the model's, not the server's."""
    failed = failure_causes.warmups(server.output())
    return _failed(failed, server.keep_log()) if failed else server.died()


def _failed(failed: tuple[Failure, ...], log: Path | None = None) -> TrbError:
    count = "a model" if len(failed) == 1 else f"{len(failed)} models"
    return TrbError(
        Code.MODEL_FAILED,
        f"{count} cannot be loaded, no server is left running\n{failure_causes.listed(failed)}",
        remedy=failure_causes.remedy(
            failed, "correct that and start again; 'trb check' finds most causes without a server"
        )
        + (f"; the server's whole log is {log}" if log else ""),
    )
