"""The embedded engine: the tritonserver of the nvidia-pytriton wheel, on this machine, without Docker.

The server runs in explicit mode and ``trb`` loads each endpoint over HTTP. The alternative, loading at
start, gives an HTTP endpoint only after the last model, hence no reason for a failure and no way to notice a
load that hangs; and only explicit mode allows a model to be loaded again when its Python process died.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

from triton_repo_builder import process, repository
from triton_repo_builder.errors import Exit, TrbError
from triton_repo_builder.process import Process
from triton_repo_builder.repository import Repository
from triton_repo_builder.serving import causes, guard, http, install, ports, ready, targets
from triton_repo_builder.serving.engine import Failure, Progress, ServeOptions
from triton_repo_builder.serving.ports import Ports
from triton_repo_builder.serving.server import EmbeddedServer
from triton_repo_builder.serving.stubs import Stubs
from triton_repo_builder.serving.targets import Targets
from triton_repo_builder.serving.watch import Watch

UP = 60.0
"""Seconds for the HTTP endpoint to come up; it takes a tenth of a second."""
TICK = 0.02
ATTEMPTS = 3
PLAIN = re.compile(r"[A-Za-z0-9_./@%+=:,-]+")
TAKEN = re.compile(r"already in use|Address already in use|failed to bind", re.IGNORECASE)


class EmbeddedEngine:
    """Starts the tritonserver that ``pip install 'triton_repo_builder[embedded]'`` brings."""

    def start(
        self, repository: Path, options: ServeOptions, progress: Progress | None = None
    ) -> EmbeddedServer:
        """Start and return once every model is ready; raise ``TrbError`` and leave nothing otherwise."""
        tell = progress or (lambda text: None)
        found = install.find()
        repo, chosen = _read(repository, options, tell)
        if chosen.failures and not chosen.load:
            raise _failed(chosen.failures)
        server = _launch(repo, chosen, options, found, tell)
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
                needing=lambda name: targets.needing(_now(repo), name),
                alive=server.alive,
                progress=tell,
                fail=fail,
                timeout=options.load_timeout,
            )
        )
        return server


def arguments(binary: Path, models: str, backends: Path, options: ServeOptions, at: Ports) -> list[str]:
    """The server's command line."""
    return [
        str(binary),
        f"--model-repository={models}",
        f"--backend-directory={backends}",
        "--model-control-mode=explicit",
        f"--http-address={options.host}",
        f"--http-port={at.http}",
        f"--grpc-address={options.host}",
        f"--grpc-port={at.grpc}",
        f"--metrics-address={options.host}",
        f"--metrics-port={at.metrics}",
        f"--exit-timeout-secs={options.exit_timeout}",
        *([f"--log-verbose={options.log_verbose}"] if options.log_verbose else []),
        *options.extra,
    ]


def _read(path: Path, options: ServeOptions, tell: Progress) -> tuple[Repository, Targets]:
    repo = repository.read(path)
    chosen = targets.choose(repo, options.models)
    for name in chosen.strangers:
        tell(f"warning: {name}/ is no model (it has no config.pbtxt and no version directory): not loaded")
    return repo, chosen


def _now(repo: Repository) -> Repository:
    """The repository as it is by now: models that were built since may be loaded since."""
    try:
        return repository.read(repo.path)
    except TrbError:
        return repo


def _launch(
    repo: Repository, chosen: Targets, options: ServeOptions, found: install.Install, tell: Progress
) -> EmbeddedServer:
    """Start the server and wait for its HTTP endpoint; a free port that was lost is chosen anew."""
    free = 0 in (options.http_port, options.grpc_port, options.metrics_port)
    for attempt in range(1, ATTEMPTS + 1):
        at = ports.choose(options)
        server = _spawn(repo, chosen, options, found, at)
        try:
            if _is_up(server):
                tell(f"tritonserver answers at {server.urls.http}, loading {len(chosen.members)} models")
                return server
            lost = TAKEN.search(causes.read(server.log)) is not None
            if not (lost and free and attempt < ATTEMPTS):
                raise _no_port(server) if lost else server.died()
        except BaseException:
            server.stop()
            raise
        server.stop()
    raise AssertionError("unreachable")


def _spawn(
    repo: Repository, chosen: Targets, options: ServeOptions, found: install.Install, at: Ports
) -> EmbeddedServer:
    folder = Path(tempfile.mkdtemp(prefix="trb-"))
    child: Process | None = None
    try:
        install.assemble(found, folder)
        models = str(repo.path.resolve())
        if not PLAIN.fullmatch(models):
            # The Python backend hands paths to a shell without quoting them.
            (folder / "models").symlink_to(models)
            models = str(folder / "models")
        log = _log_file(options, folder)
        server = arguments(found.binary, models, folder / "backends", options, at)
        own = [sys.executable, "-I", "-S", guard.__file__, str(options.exit_timeout + 2), str(folder)]
        child = process.spawn([*own, *server], log=log, env=install.environment(found, folder), leash=True)
        pid = _server_pid(folder / guard.PID_FILE, child)
        return EmbeddedServer(
            child,
            pid,
            at.urls(options.host),
            log=log,
            folder=folder,
            endpoints=chosen.endpoints,
            stubs=Stubs(pid, models),
        )
    except BaseException:
        if child is not None:
            child.terminate()
            child.wait()
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _log_file(options: ServeOptions, folder: Path) -> Path:
    if options.log_file is None:
        return folder / "server.log"
    try:
        options.log_file.write_bytes(b"")
    except OSError as error:
        raise TrbError(
            Exit.OUTPUT_NOT_WRITABLE,
            f"cannot be written: {error.strerror}",
            where=str(options.log_file),
            remedy="name a file in an existing folder of yours with --log-file",
        ) from None
    return options.log_file.resolve()


def _server_pid(file: Path, child: Process) -> int:
    while not (file.exists() and file.read_text()):
        if child.poll() is not None:
            raise TrbError(
                Exit.SERVER_DIED, "tritonserver could not be started", remedy="report this as a bug of trb"
            )
        time.sleep(0.005)
    return int(file.read_text())


def _is_up(server: EmbeddedServer) -> bool:
    deadline = time.monotonic() + UP
    while server.alive():
        if http.ready(server.urls.http):
            return True
        if time.monotonic() > deadline:
            raise TrbError(
                Exit.TIMED_OUT,
                f"tritonserver does not answer at {server.urls.http}",
                remedy=f"the server's output is in {server.keep_log()}",
            )
        time.sleep(TICK)
    return False


def _no_port(server: EmbeddedServer) -> TrbError:
    return TrbError(
        Exit.PORT_BUSY,
        f"a port was taken while the server started: {causes.last_errors(causes.read(server.log), 1)}",
        remedy="try again, or take other ports (--http-port 0 --grpc-port 0 --metrics-port 0)",
    )


def _load(
    server: EmbeddedServer, repo: Repository, chosen: Targets, options: ServeOptions, tell: Progress
) -> None:
    """Load everything; raise one error that names every model that failed."""
    loaded = ready.load(
        server.urls.http,
        chosen.load,
        server.stubs,
        timeout=options.load_timeout,
        alive=server.alive,
        progress=tell,
        total=len(chosen.members),
    )
    if not server.alive():
        raise server.died()
    known = (*chosen.failures, *(causes.explained(failure, server.log) for failure in loaded.hung))
    hanging = {name for failure in loaded.hung for name in failure.model.split(", ")}
    states = {} if loaded.ok else http.index(server.urls.http)
    failed = causes.failures(repo, loaded.answers, states, causes.read(server.log), known, loaded.ends)
    late = [name for name in loaded.unfinished if name not in hanging]
    if failed:
        raise _failed(failed, server.keep_log())
    if late:
        raise TrbError(
            Exit.TIMED_OUT,
            f"not ready after {options.load_timeout:g} s: {', '.join(late)}",
            remedy=f"allow more time with --timeout, or see what they do in {server.keep_log()}",
        )


def _failed(failed: tuple[Failure, ...], log: Path | None = None) -> TrbError:
    count = "a model" if len(failed) == 1 else f"{len(failed)} models"
    return TrbError(
        Exit.MODEL_FAILED,
        f"{count} cannot be loaded, no server is left running\n{causes.listed(failed)}",
        remedy="correct that and start again; 'trb check' finds most causes without a server"
        + (f"; the server's whole log is {log}" if log else ""),
    )
