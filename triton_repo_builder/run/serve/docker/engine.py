"""The Docker engine: create a container, give it the repository, start it, load the models."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Repository
from triton_repo_builder.run.client import Urls
from triton_repo_builder.run.client.values import LOOPBACK
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.run.serve import release, tracing
from triton_repo_builder.run.serve.docker import (
    daemon,
    errors,
    images,
    settings,
    volume,
)
from triton_repo_builder.run.serve.docker.cleanup import Cleanup
from triton_repo_builder.run.serve.docker.handle import ContainerServer
from triton_repo_builder.run.serve.engine import Progress
from triton_repo_builder.run.serve.loading import start as loading_start
from triton_repo_builder.run.serve.loading.select import Targets
from triton_repo_builder.run.serve.managed_server import LaunchedServer
from triton_repo_builder.run.serve.processes import ports
from triton_repo_builder.run.serve.processes.ports import DEFAULTS, Ports

UP = 120.0
"""Seconds for the HTTP endpoint to come up; the official image takes a few."""


class DockerEngine:
    """Engine that runs the repository in a container of any image with a tritonserver."""

    def start(
        self, repository: Path, options: ServeOptions, progress: Progress | None = None
    ) -> ContainerServer:
        """Start and return once every model is ready; raise ``TrbError`` and leave nothing otherwise."""
        tell = progress or (lambda text: None)
        repo, chosen = loading_start.read(repository, options, tell)
        options = loading_start.as_written(repo, options)
        options = loading_start.with_model_needs(repo, chosen, options)
        with daemon.explained_errors():
            tracing.warn_of_loopback(options, tell)
            client = daemon.connect()
            devices = settings.gpus(client, options.container.gpus)
            _check_ports(options)
            options = _with_image(client, repo, options)
            image = images.provide(client, options.container.image, options.container.pull, tell)
            server = _launch(client, image, repo, chosen, options, devices, tell)
            loading_start.bring_up(server, repo, chosen, options, tell)
        return server


def _with_image(client: Any, repo: Repository, options: ServeOptions) -> ServeOptions:
    """Name the image: the user's, or NVIDIA's of the release that the repository was written for.

    A repository without a release gets the newest of NVIDIA's images that is here.
    """
    container = options.container
    built_for = None
    if not container.image and not container.release:
        pulled = None if (built_for := release.of_manifest(repo.manifest)) else release.newest_pulled(client)
        built_for = pulled.release if pulled else built_for
    return replace(options, container=replace(container, image=images.choose(container, built_for)))


def _check_ports(options: ServeOptions) -> None:
    """Raise for a busy or unreachable port before anything is started."""
    remote = daemon.remote_host()
    if not remote:
        ports.choose(options)
    elif options.host in LOOPBACK:
        raise TrbError(
            Code.USAGE,
            f"the Docker daemon is on {remote}, and its {options.host} cannot be reached from here",
            where="--host",
            remedy=f"--host {remote} (or 0.0.0.0) publishes the ports to everybody who reaches {remote}; "
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
    """A container whose HTTP endpoint answers; leaves nothing behind if that fails."""
    cleanup = Cleanup(repo.path.resolve())
    try:
        log = loading_start.log_file(options, cleanup.folder)
        container = _running(client, image, repo, options, devices, cleanup, tell)
        launched = LaunchedServer(
            urls=_urls(container, options),
            log=log,
            folder=cleanup.folder,
            endpoints=chosen.endpoints,
            about=_description(image, options.container.image),
            key=options.admin_key,
        )
        server = ContainerServer(client, container, cleanup, launched, options)
    except TrbError:
        cleanup.clear(client)
        raise
    except BaseException:
        # A request on its way to the daemon may still create something: the supervisor waits for it.
        cleanup.abandon()
        raise
    try:
        if not loading_start.is_up(server, UP):
            raise errors.ended(server.died(), server.output(), options.container.image)
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
    cleanup: Cleanup,
    tell: Progress,
) -> Any:
    """The container, started."""
    root = repo.path.resolve()
    user = settings.user(image, options.container.user)
    source = str(root)
    limits = dict(settings.LIMITS)

    def create() -> bool:
        return errors.create(
            client,
            image,
            settings.arguments(repo, options, devices, limits, user, source, cleanup.container),
        )

    hidden = volume.obstacle(root, settings.uid(image, user), same_ids=not daemon.rootless(client))
    if not hidden and not (create() and volume.shows_same_files(client, cleanup.container, root)):
        hidden = "the Docker daemon does not see this folder"
        _remove(client, cleanup)
    if hidden:
        tell(f"the repository cannot be mounted ({hidden})")
        volume.copy(client, image, root, cleanup, tell)
        source = cleanup.volume
        create()
    if not errors.start(client, cleanup.container):
        tell("warning: the Docker daemon may not raise memlock: pinned memory stays limited")
        del limits["memlock"]
        _remove(client, cleanup)
        create()
        errors.start(client, cleanup.container)
    return client.containers.get(cleanup.container)


def _remove(client: Any, cleanup: Cleanup) -> None:
    with suppress(daemon.not_found()):
        client.api.remove_container(cleanup.container, force=True)


def _urls(container: Any, options: ServeOptions) -> Urls:
    """Addresses of the published ports; Docker has chosen the free ones."""
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


def _description(image: Any, name: str) -> str:
    version = images.server_version(image)
    digest = next(iter(image.attrs.get("RepoDigests") or ()), image.id).rpartition("@")[2]
    return f"docker: {name}{f', tritonserver {version}' if version else ''} ({digest[:19]})"
