"""The release of the engine that will run a repository: ``--triton-release auto``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.releases import Release, Target
from triton_repo_builder.repository import Manifest
from triton_repo_builder.run.serve.docker import daemon, images
from triton_repo_builder.run.serve.embedded import install

_TAGGED = re.compile(r"(?:^|/)(?:trb-)?tritonserver:(?P<release>\d\d\.\d\d)(?:-[\w.-]+)?(?:@\S+)?")
"""A copy of NVIDIA's image, and trb's own: their tags begin with the release."""


def tagged(image: str) -> str:
    """The release in an image's tag; empty if it states none."""
    match = _TAGGED.search(image)
    return match["release"] if match else ""


def target(engine: str = "auto", image: str = "") -> Target:
    """The release to build for, and why. Raises ``TrbError`` for an image whose release is unknown.

    Without an image no Docker daemon is needed: one that is not there confirms nothing.
    """
    if image:
        return _of_image(image)
    if engine == "docker":
        return _pulled() or Target(
            release=releases.newest(),
            source="newest",
            why=f"the newest known on {releases.read()}; no image of NVIDIA's is pulled here",
        )
    embedded = releases.target(None)
    if engine == "auto" and not _installed():
        return _pulled() or embedded
    return embedded


def _installed() -> bool:
    try:
        install.find()
    except TrbError:
        return False
    return True


def _pulled() -> Target | None:
    """The newest release of which this machine has NVIDIA's image, by the image's own label."""
    with _docker() as client:
        return newest_pulled(client) if client else None


def newest_pulled(client: Any) -> Target | None:
    """The newest release whose image is pulled and states the release's server version in its label."""
    for release in reversed(releases.load().values()):
        name = images.OFFICIAL.format(release=release.name)
        try:
            version = images.server_version(client.images.get(name))
        except daemon.errors():
            continue
        if version == release.server:
            return Target(
                release=release, source="image", why=f"{name} is pulled here (tritonserver {version})"
            )
    return None


def _of_image(name: str) -> Target:
    """The release of an image: of its label if it is here, else of its tag."""
    version = _version_pulled(name)
    if version:
        why = f"{name} has tritonserver {version}"
        return Target(release=releases.of_server(version), source="image", why=why)
    if tagged(name) in releases.load():
        return Target(release=releases.get(tagged(name)), source="image", why=f"the tag of {name}")
    raise TrbError(
        Code.USAGE,
        "the release in this image is not known: it is not pulled here, or has no label with the version of "
        "tritonserver, and its tag does not state it",
        where=name,
        remedy=f"docker pull {name}, or name the release with --triton-release instead of the image",
    )


def _version_pulled(name: str) -> str:
    """The version of tritonserver that an image's label states; empty if it is not here or states none."""
    with _docker() as client, suppress(*daemon.errors()):
        return images.server_version(client.images.get(name)) if client else ""
    return ""


@contextmanager
def _docker() -> Iterator[Any]:
    """A client of the Docker daemon; None where none answers."""
    client = None
    if daemon.configured():
        with suppress(TrbError):
            client = daemon.connect()
    try:
        yield client
    finally:
        if client is not None:
            client.close()


def of_manifest(manifest: Manifest | None) -> Release | None:
    """The newest release that a known endpoint was written for; older ones run there, too."""
    names = manifest.releases if manifest else ()
    listed = [name for name in names if name in releases.load()]
    return releases.get(listed[-1]) if listed else None
