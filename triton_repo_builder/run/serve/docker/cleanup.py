"""Names and labels of trb's containers, volumes and images, and their removal, also after a crash."""

from __future__ import annotations

import os
import platform
import re
import secrets
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from triton_repo_builder import __version__
from triton_repo_builder.base import process
from triton_repo_builder.base.process import Process
from triton_repo_builder.run.serve import workdir
from triton_repo_builder.run.serve.docker import daemon, supervisor
from triton_repo_builder.run.serve.processes import proc

TRB = "io.github.triton-repo-builder"
REPOSITORY = f"{TRB}.repository"
OWNER = f"{TRB}.owner"
"""``machine/pid/start time`` of the ``trb`` that supervises the object."""
BUILD = f"{TRB}.build"
"""``machine/pid/start time`` of the ``trb`` that built an image (docker/Dockerfile)."""
STAGE = f"{TRB}.stage"
"""Label of intermediate images of a build, never of a served image (docker/Dockerfile)."""
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
"""Characters that Docker refuses in a name."""


class Cleanup:
    """Names of one server's container, helper and volume, known to the supervisor before they exist."""

    def __init__(self, repository: Path) -> None:
        self.container = f"trb-{NOT_IN_NAMES.sub('-', repository.name)}-{secrets.token_hex(4)}"
        self.helper = f"{self.container}-copy"
        self.volume = f"{self.container}-models"
        self._supervisor: Process = process.spawn_with_pipes(
            [sys.executable, supervisor.__file__, self.container, self.helper, self.volume], env=os.environ
        )

    @cached_property
    def folder(self) -> Path:
        """Temporary folder of this server; the supervisor creates it before anything else.

        Raises ``TrbError``.
        """
        return workdir.folder(self._supervisor)

    def clear(self, client: Any) -> None:
        """Remove everything and end the supervisor. Never raises."""
        for name in (self.container, self.helper):
            with suppress(*daemon.errors()):
                client.api.remove_container(name, force=True, v=True)
        with suppress(*daemon.errors()):
            client.api.remove_volume(self.volume, force=True)
        process.send(self._supervisor, b"x")
        process.release(self._supervisor)

    def abandon(self) -> None:
        """Leave the removal to the supervisor, which also removes objects that the daemon still creates."""
        process.release(self._supervisor)


def labels(repository: Path) -> dict[str, str]:
    """Labels for Docker objects of this process."""
    return {TRB: __version__, REPOSITORY: str(repository), OWNER: owner(os.getpid())}


def owner(pid: int) -> str:
    """Identity of a process, distinct from later ones with its id and from processes of other machines."""
    return f"{platform.node()}/{pid}/{proc.start_time(pid)}"


def stray(marks: Mapping[str, str], key: str = OWNER) -> bool:
    """Whether the label names a ``trb`` of this machine that is gone."""
    rest, _, born = marks.get(key, "").rpartition("/")
    machine, _, number = rest.rpartition("/")
    if machine != platform.node() or not number.isdigit() or not born:
        return False
    pid = int(number)
    # A process whose start time this user may not see counts as the same.
    return not proc.alive(pid) or proc.start_time(pid) not in (born, "")


def remove_strays(client: Any) -> list[str]:
    """Remove objects of a ``trb`` that was killed together with its supervisor; return their names."""
    removed = []
    filters = {"label": TRB}
    for container in client.containers.list(all=True, filters=filters, sparse=True):
        if stray(container.attrs.get("Labels") or {}):
            name = str((container.attrs.get("Names") or [container.id])[0]).lstrip("/")
            # Another may be removing it at this very moment.
            with suppress(*daemon.errors()):
                client.api.remove_container(container.id, force=True, v=True)
                removed.append(name)
    for volume in client.volumes.list(filters=filters):
        if stray(volume.attrs.get("Labels") or {}):
            with suppress(*daemon.errors()):
                volume.remove(force=True)
                removed.append(str(volume.name))
    return removed


def remove_dangling(client: Any) -> int:
    """Remove untagged images of builds by this process, or by a ``trb`` that is gone. Never raises.

    These are stages, the last layers of builds that failed, and images whose tag a new build took. The
    containers of a stage's steps go first: one that the daemon could not remove itself (its disk was busy, it
    ended) would keep the image. Returns how many of this process's images remain.
    """
    remaining = 0
    with suppress(*daemon.errors()):
        steps = {"label": STAGE}
        for container in client.containers.list(all=True, filters=steps, sparse=True):
            if _abandoned(container.attrs.get("Labels") or {}):
                with suppress(*daemon.errors()):
                    client.api.remove_container(container.id, force=True, v=True)
        for image in client.api.images(filters={"dangling": True, "label": BUILD}):
            marks = image.get("Labels") or {}
            if _abandoned(marks):
                mine = marks.get(BUILD) == owner(os.getpid())
                remaining += mine
                # Without force: an image that a container still uses stays.
                with suppress(*daemon.errors()):
                    client.api.remove_image(image["Id"])
                    remaining -= mine
    return remaining


def _abandoned(marks: Mapping[str, str]) -> bool:
    """Whether a finished build created the image: a build of this process, or of a ``trb`` that is gone."""
    return marks.get(BUILD) == owner(os.getpid()) or stray(marks, BUILD)
