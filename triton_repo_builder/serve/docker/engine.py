"""The Docker engine: create the container, give it the repository, start it, load the models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triton_repo_builder.client import Urls
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.repository import Repository
from triton_repo_builder.serve.docker import (
    daemon,
    errors,
    gpus,
    images,
    settings,
    volume,
)
from triton_repo_builder.serve.docker.cleanup import Leash
from triton_repo_builder.serve.docker.handle import ContainerServer
from triton_repo_builder.serve.engine import Progress, ServeOptions
from triton_repo_builder.serve.loading import failure_causes
from triton_repo_builder.serve.loading import start as loading_start
from triton_repo_builder.serve.loading.select import Targets
from triton_repo_builder.serve.processes import ports
from triton_repo_builder.serve.processes.ports import DEFAULTS, Ports

UP = 120.0
"""Seconds for the HTTP endpoint to come up; the official image takes a few."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class DockerEngine:
    """Runs the repository in a container of any image with a tritonserver."""

    def start(
        self, repository: Path, options: ServeOptions, progress: Progress | None = None
    ) -> ContainerServer:
        """Start and return once every model is ready; raise ``TrbError`` and leave nothing otherwise."""
        tell = progress or (lambda text: None)
        repo, chosen = loading_start.read(repository, options, tell)
        with daemon.talking():
            client = daemon.connect()
            devices = gpus.request(client, options.container.gpus)
            _check_ports(options)
            image = images.provide(client, images.choose(options.container), options.container.pull, tell)
            server = _launch(client, image, repo, chosen, options, devices, tell)
            loading_start.bring_up(server, repo, chosen, options, tell)
        return server


def _check_ports(options: ServeOptions) -> None:
    """A port that is taken, or that could not be reached, is named before anything is started."""
    far = daemon.remote_host()
    if not far:
        ports.choose(options)
    elif options.host in LOOPBACK:
        raise TrbError(
            Code.USAGE,
            f"the Docker daemon is on {far}, and its {options.host} cannot be reached from here",
            where="--host",
            remedy=f"--host {far} (or 0.0.0.0) publishes the ports to everybody who reaches {far}; "
            "or run trb on that machine",
        )


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
    leash = Leash(repo.path.resolve())
    try:
        log = loading_start.log_file(options, leash.folder)
        container = _running(client, image, repo, options, devices, leash, tell)
        server = ContainerServer(
            client,
            container,
            leash,
            _urls(container, options),
            log=log,
            endpoints=chosen.endpoints,
            about=_described(image, images.choose(options.container)),
            exit_timeout=options.exit_timeout,
        )
    except TrbError:
        leash.clear(client)
        raise
    except BaseException:
        # What is on its way to the daemon now has no owner any more: the guard waits for it.
        leash.abandon()
        raise
    try:
        if not loading_start.is_up(server, UP):
            raise errors.ended(
                server.died(), failure_causes.read(server.log), images.choose(options.container)
            )
    except BaseException:
        server.stop(hurry=True)
        raise
    tell(f"tritonserver answers at {server.urls.http}, loading {len(chosen.members)} models")
    return server


def _running(
    client: Any,
    image: Any,
    repo: Repository,
    options: ServeOptions,
    devices: list[Any],
    leash: Leash,
    tell: Progress,
) -> Any:
    """The container, started."""
    root = repo.path.resolve()
    user = settings.user(image, options.container.user)
    source = str(root)
    limits = dict(settings.LIMITS)

    def create() -> bool:
        made = settings.arguments(repo, options, devices, limits, user, source, leash.container)
        return errors.create(client, image, made)

    hidden = volume.obstacle(root, settings.uid(image, user), same_ids=not daemon.rootless(client))
    if not hidden and not (create() and volume.arrived(client, leash.container, root)):
        hidden = "the Docker daemon does not see this folder"
        _remove(client, leash)
    if hidden:
        tell(f"the repository cannot be mounted ({hidden})")
        volume.copy(client, image, root, leash, tell)
        source = leash.volume
        create()
    if not errors.start(client, leash.container):
        tell("warning: the Docker daemon may not raise memlock: pinned memory stays limited")
        del limits["memlock"]
        _remove(client, leash)
        create()
        errors.start(client, leash.container)
    return client.containers.get(leash.container)


def _remove(client: Any, leash: Leash) -> None:
    import docker

    try:
        client.api.remove_container(leash.container, force=True)
    except docker.errors.NotFound:
        return


def _urls(container: Any, options: ServeOptions) -> Urls:
    """Where the published ports are, as Docker chose the free ones."""
    published: Mapping[str, Any] = container.attrs["NetworkSettings"]["Ports"]

    def number(kind: str) -> int:
        entries = published.get(f"{DEFAULTS[kind]}/tcp") or []
        if not entries:
            raise TrbError(
                Code.SERVER_DIED,
                "the container ended at once",
                where=str(container.name),
                remedy="is it an image with a tritonserver? try: docker run --rm IMAGE tritonserver --help",
            )
        return int(entries[0]["HostPort"])

    at = Ports(http=number("http"), grpc=number("grpc"), metrics=number("metrics"))
    return at.urls(daemon.remote_host() or options.host)


def _described(image: Any, name: str) -> str:
    labels = image.labels or {}
    version = labels.get("com.nvidia.tritonserver.version") or labels.get(images.SERVER_LABEL) or ""
    digest = next(iter(image.attrs.get("RepoDigests") or ()), image.id).rpartition("@")[2]
    return f"docker: {name}{f', tritonserver {version}' if version else ''} ({digest[:19]})"
