"""The Docker engine: create the container, give it the repository, start it, load the models."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from triton_repo_builder import process
from triton_repo_builder.errors import Exit, TrbError
from triton_repo_builder.process import Process
from triton_repo_builder.repository import Repository
from triton_repo_builder.serving import causes, loading, ports, shm
from triton_repo_builder.serving.container import content, daemon, gpus, guard, images, labels, refusals
from triton_repo_builder.serving.container.server import ContainerServer
from triton_repo_builder.serving.engine import Progress, ServeOptions, Urls
from triton_repo_builder.serving.ports import DEFAULTS, Ports
from triton_repo_builder.serving.targets import Targets

UP = 120.0
"""Seconds for the HTTP endpoint to come up; the official image takes a few."""
LIMITS = {"memlock": -1, "stack": 64 << 20}
"""What NVIDIA gives its containers: pinned memory without limit, a stack for TensorRT."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
UNNAMED = re.compile(r"[^A-Za-z0-9_.-]+")
"""What Docker does not take in a name."""
NOBODY = "1000:1000"
"""Who runs the server where ``trb`` itself runs as root; the official image knows this user."""


class DockerEngine:
    """Runs the repository in a container of any image with a tritonserver."""

    def start(
        self, repository: Path, options: ServeOptions, progress: Progress | None = None
    ) -> ContainerServer:
        """Start and return once every model is ready; raise ``TrbError`` and leave nothing otherwise."""
        tell = progress or (lambda text: None)
        repo, chosen = loading.read(repository, options, tell)
        client = daemon.connect()
        devices = gpus.request(client, options.container.gpus)
        _check_ports(options)
        image = images.provide(client, images.choose(options.container), options.container.pull, tell)
        server = _launch(client, image, repo, chosen, options, devices, tell)
        loading.bring_up(server, repo, chosen, options, tell)
        return server


def _check_ports(options: ServeOptions) -> None:
    """A port that is taken, or that could not be reached, is named before anything is started."""
    far = daemon.remote_host()
    if not far:
        ports.choose(options)
    elif options.host in LOOPBACK:
        raise TrbError(
            Exit.USAGE,
            f"the Docker daemon is on {far}, and its {options.host} cannot be reached from here",
            where="--host",
            remedy=f"--host {far} (or 0.0.0.0) publishes the ports to everybody who reaches {far}; "
            "or run trb on that machine",
        )


def command(options: ServeOptions) -> list[str]:
    """The server's command line inside the container."""
    return [
        "tritonserver",
        f"--model-repository={content.MODELS}",
        "--model-control-mode=explicit",
        *(f"--{kind}-port={number}" for kind, number in DEFAULTS.items()),
        f"--exit-timeout-secs={options.exit_timeout}",
        *([f"--log-verbose={options.log_verbose}"] if options.log_verbose else []),
        *options.extra,
    ]


def _launch(
    client: Any,
    image: Any,
    repo: Repository,
    chosen: Targets,
    options: ServeOptions,
    devices: list[Any],
    tell: Progress,
) -> ContainerServer:
    """A container whose HTTP endpoint answers; nothing is left where that fails."""
    folder = Path(tempfile.mkdtemp(prefix="trb-"))
    container, volume, watcher = None, None, None
    try:
        log = loading.log_file(options, folder)
        limits = LIMITS
        container, volume = _create(client, image, repo, options, devices, limits, tell)
        watcher = _guard(container, volume, folder)
        if not refusals.start(container):
            tell("warning: the Docker daemon may not raise memlock: pinned memory stays limited")
            _remove(container, volume)
            _release(watcher)
            limits = {"stack": LIMITS["stack"]}
            container, volume = _create(client, image, repo, options, devices, limits, tell)
            watcher = _guard(container, volume, folder)
            refusals.start(container)
        container.reload()
        server = ContainerServer(
            container,
            watcher,
            _urls(container, options),
            log=log,
            folder=folder,
            endpoints=chosen.endpoints,
            volume=volume,
            about=_described(image, images.choose(options.container)),
            exit_timeout=options.exit_timeout,
        )
    except BaseException:
        _remove(container, volume)
        if watcher is not None:
            _release(watcher)
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        if not loading.is_up(server, UP):
            raise refusals.ended(server.died(), causes.read(server.log), images.choose(options.container))
    except BaseException:
        server.stop(hurry=True)
        raise
    tell(f"tritonserver answers at {server.urls.http}, loading {len(chosen.members)} models")
    return server


def _create(
    client: Any,
    image: Any,
    repo: Repository,
    options: ServeOptions,
    devices: list[Any],
    limits: dict[str, int],
    tell: Progress,
) -> tuple[Any, Any]:
    """The container, not started, and the volume that holds the repository where it cannot be mounted."""
    root = repo.path.resolve()
    user = _user(image, options.container.user)
    same_ids = not daemon.rootless(client)
    uid = int(user.partition(":")[0]) if user.partition(":")[0].isdigit() else 0
    obstacle = content.mountable(root, uid, same_ids=same_ids)
    if not obstacle:
        container = refusals.create(
            client, image, _settings(repo, options, devices, limits, user, str(root), root)
        )
        if container is not None and content.arrived(container, root):
            return container, None
        _remove(container, None)
        obstacle = "the Docker daemon does not see this folder"
    tell(f"the repository cannot be mounted ({obstacle})")
    volume = content.volume(client, image, root, user, tell)
    try:
        return client.containers.create(
            image.id, **_settings(repo, options, devices, limits, user, volume.name, root)
        ), volume
    except BaseException:
        volume.remove(force=True)
        raise


def _settings(
    repo: Repository,
    options: ServeOptions,
    devices: list[Any],
    limits: dict[str, int],
    user: str,
    source: str,
    root: Path,
) -> dict[str, Any]:
    """Arguments of ``containers.create``."""
    from docker.types import Mount, Ulimit

    local = not source.startswith("/")
    wanted = {"http": options.http_port, "grpc": options.grpc_port, "metrics": options.metrics_port}
    published: Mapping[str, tuple[str, int | None]] = {
        f"{DEFAULTS[kind]}/tcp": (options.host, (DEFAULTS[kind] if number is None else number) or None)
        for kind, number in wanted.items()
    }
    return {
        "command": command(options),
        "mounts": [
            Mount(content.MODELS, source, type="volume" if local else "bind", read_only=True),
        ],
        "ports": published,
        "shm_size": shm.needed(repo),
        "ulimits": [Ulimit(name=name, soft=value, hard=value) for name, value in limits.items()],
        "user": user or None,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "device_requests": devices or None,
        "labels": labels.mine(root),
        "name": f"trb-{UNNAMED.sub('-', root.name)}-{secrets.token_hex(4)}",
        "environment": {"PYTHONDONTWRITEBYTECODE": "1"},
    }


def _user(image: Any, wanted: str) -> str:
    """``UID:GID`` to run as: never root unless asked for; empty for the image's own user."""
    own = str(image.attrs.get("Config", {}).get("User") or "")
    if wanted == "image":
        return ""
    if wanted:
        return wanted
    if own and own.partition(":")[0] not in ("root", "0"):
        return own
    return f"{os.getuid()}:{os.getgid()}" if os.getuid() else NOBODY


def _guard(container: Any, volume: Any, folder: Path) -> Process:
    names = [container.id, *([volume.name] if volume is not None else [])]
    return process.spawn(
        [sys.executable, "-m", guard.__name__, *names],
        log=folder / "guard.log",
        env=os.environ,
        leash=True,
    )


def _release(watcher: Process) -> None:
    """End the guard; there is nothing left for it to remove."""
    assert watcher.stdin is not None
    watcher.stdin.close()
    watcher.wait()


def _urls(container: Any, options: ServeOptions) -> Urls:
    """Where the published ports are, as Docker chose the free ones."""
    published = container.attrs["NetworkSettings"]["Ports"]

    def number(kind: str) -> int:
        entries = published.get(f"{DEFAULTS[kind]}/tcp") or []
        if not entries:
            raise TrbError(
                Exit.SERVER_DIED,
                "the container ended at once",
                where=str(container.name),
                remedy="is it an image with a tritonserver? try: docker run --rm IMAGE tritonserver --help",
            )
        return int(entries[0]["HostPort"])

    at = Ports(http=number("http"), grpc=number("grpc"), metrics=number("metrics"))
    return at.urls(daemon.remote_host() or options.host)


def _described(image: Any, name: str) -> str:
    labels_of = image.labels or {}
    version = labels_of.get("com.nvidia.tritonserver.version") or labels_of.get(f"{labels.TRB}.server") or ""
    digest = next(iter(image.attrs.get("RepoDigests") or ()), image.id).rpartition("@")[2]
    return f"docker: {name}{f', tritonserver {version}' if version else ''} ({digest[:19]})"


def _remove(container: Any, volume: Any) -> None:
    import docker

    for thing in (container, volume):
        if thing is not None:
            with suppress(docker.errors.APIError):
                thing.remove(force=True)
