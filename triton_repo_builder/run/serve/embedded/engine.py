"""The embedded engine: the tritonserver of the nvidia-pytriton wheel, on this machine, without Docker."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from triton_repo_builder.base import files, process
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.process import Process
from triton_repo_builder.repository import Repository
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.run.serve import admin_apis, tracing, workdir
from triton_repo_builder.run.serve.embedded import install, supervisor
from triton_repo_builder.run.serve.embedded.handle import EmbeddedServer
from triton_repo_builder.run.serve.engine import Progress
from triton_repo_builder.run.serve.loading import failure_causes
from triton_repo_builder.run.serve.loading import start as loading_start
from triton_repo_builder.run.serve.loading.select import Targets
from triton_repo_builder.run.serve.managed_server import LaunchedServer
from triton_repo_builder.run.serve.processes import ports
from triton_repo_builder.run.serve.processes.ports import Ports
from triton_repo_builder.run.serve.processes.stubs import StubProcesses, model_of_instance

UP = 60.0
"""Seconds for the HTTP endpoint to come up; it takes a tenth of a second."""
ATTEMPTS = 3
DOWNLOADS = "downloads"
"""Folder for the downloads of a server that reads a bucket."""
PATHS = re.compile(
    r"(--(?:(?:log|trace)-file|(?:backend|cache|repoagent)-directory|model-(?:repository|store)"
    r"|grpc-(?:server-cert|server-key|root-cert))=|--trace-config=\w+,file=)(?!\w+://)(.+)"
)
"""Options of tritonserver whose value is a path."""
TAKEN = re.compile(r"already in use|Address already in use|failed to bind", re.IGNORECASE)


class EmbeddedEngine:
    """Engine that starts the tritonserver that ``pip install 'triton_repo_builder[embedded]'`` brings."""

    def start(
        self, repository: Path, options: ServeOptions, progress: Progress | None = None
    ) -> EmbeddedServer:
        """Start and return once every model is ready; raise ``TrbError`` and leave nothing otherwise."""
        tell = progress or (lambda text: None)
        installation = install.find()
        repo, chosen = loading_start.read(repository, options, tell)
        options = loading_start.as_written(repo, options)
        options = loading_start.with_model_needs(repo, chosen, options)
        server = _launch(repo, chosen, options, installation, tell)
        loading_start.bring_up(server, repo, chosen, options, tell)
        return server


def arguments(binary: Path, models: str, backends: Path, options: ServeOptions, at: Ports) -> list[str]:
    """The server's command line."""
    return [
        str(binary),
        f"--model-repository={models}",
        f"--backend-directory={backends}",
        f"--cache-directory={binary.parents[1] / 'caches'}",
        "--model-control-mode=explicit",
        f"--http-address={options.host}",
        f"--http-port={at.http}",
        f"--grpc-address={options.host}",
        f"--grpc-port={at.grpc}",
        f"--metrics-address={options.host}",
        f"--metrics-port={at.metrics}",
        f"--exit-timeout-secs={options.exit_timeout}",
        *(["--log-verbose=1"] if options.verbose else []),
        *admin_apis.arguments(options),
        *tracing.arguments(options),
        *(_absolute(option) for option in options.extra),
    ]


def _absolute(option: str) -> str:
    """The option with a path that is also valid in the server's own current folder."""
    match = PATHS.fullmatch(option)
    return f"{match[1]}{Path(match[2]).absolute()}" if match else option


def _launch(
    repo: Repository, chosen: Targets, options: ServeOptions, installation: install.Install, tell: Progress
) -> EmbeddedServer:
    """Start the server and wait for its HTTP endpoint; retries if a free port was taken meanwhile."""
    free = 0 in (options.http_port, options.grpc_port, options.metrics_port)
    for attempt in range(1, ATTEMPTS + 1):
        at = ports.choose(options)
        server = _spawn(repo, chosen, options, installation, at)
        try:
            if loading_start.is_up(server, UP):
                tell(f"tritonserver answers at {server.urls.http}, loading {len(chosen.members)} models")
                return server
            port_lost = TAKEN.search(server.output()) is not None
            if not (port_lost and free and attempt < ATTEMPTS):
                raise _no_port(server) if port_lost else server.died()
        except BaseException:
            server.stop()
            raise
        server.stop()
    raise AssertionError("unreachable")


def _spawn(
    repo: Repository, chosen: Targets, options: ServeOptions, installation: install.Install, at: Ports
) -> EmbeddedServer:
    child = process.spawn_with_pipes(
        [sys.executable, "-I", "-S", supervisor.__file__, str(options.exit_timeout + 2)], env=os.environ
    )
    try:
        folder = workdir.folder(child)
        install.assemble(installation, folder)
        models = str(folder / DOWNLOADS) if options.models_url else _models(repo, folder)
        log = loading_start.log_file(options, folder)
        server = arguments(
            installation.binary, options.models_url or models, folder / "backends", options, at
        )
        env = {**install.environment(installation, folder), **tracing.environment(options)}
        if options.models_url:
            (folder / DOWNLOADS).mkdir()
            # In our folder, so that the downloads are removed however the server ends.
            env["TRITON_AWS_MOUNT_DIRECTORY"] = models
        pid = _run(child, supervisor.order(server, env, str(log.path), options.log_json))
        launched = LaunchedServer(
            urls=at.urls(options.host),
            log=log,
            folder=folder,
            endpoints=chosen.endpoints,
            about=install.description(),
            key=options.admin_key,
        )
        stubs = StubProcesses(pid, models, model_of_instance(repo) if options.models_url else None)
        return EmbeddedServer(child, pid, launched, stubs)
    except BaseException as error:
        # Its supervisor stops it and removes the folder.
        process.release(child)
        if isinstance(error, OSError) and files.is_full(error):
            place = Path(tempfile.gettempdir())
            raise files.explain(error, place, how="by TMPDIR", kept="no server was started") from None
        raise


def _models(repo: Repository, folder: Path) -> str:
    """The repository's path; the Python backend hands it to a shell without quoting it."""
    models = str(repo.path.resolve())
    if supervisor.PLAIN.fullmatch(models):
        return models
    (folder / "models").symlink_to(models)
    return str(folder / "models")


def _run(child: Process, order: bytes) -> int:
    """Have the supervisor start the server; returns the server's process id."""
    process.send(child, order)
    line = process.line(child, workdir.PATIENCE)
    if not line.isdigit():
        raise TrbError(
            Code.SERVER_DIED,
            f"tritonserver could not be started: {line or 'its supervisor ended'}",
            remedy="report this as a bug of trb",
        )
    return int(line)


def _no_port(server: EmbeddedServer) -> TrbError:
    reason = failure_causes.last_errors(server.output(), 1)
    return TrbError(
        Code.PORT_BUSY,
        f"a port was taken while the server started: {reason}",
        remedy="try again, or take other ports (--http-port 0 --grpc-port 0 --metrics-port 0)",
    )
