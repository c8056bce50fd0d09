"""What marks a container or volume as made by ``trb``, and by which process."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from triton_repo_builder import __version__, process
from triton_repo_builder.serve.background import registry
from triton_repo_builder.serve.docker import daemon

TRB = "io.github.triton-repo-builder"
REPOSITORY = f"{TRB}.repository"
OWNER = f"{TRB}.owner"
"""``machine/pid/start time`` of the ``trb`` that looks after it."""


def mine(repository: Path) -> dict[str, str]:
    """Labels for what this process makes."""
    return {TRB: __version__, REPOSITORY: str(repository), OWNER: owner(os.getpid())}


def owner(pid: int) -> str:
    """A process, told from any later one with its id and from those of other machines."""
    return f"{platform.node()}/{pid}/{registry.born(pid)}"


def stray(labels: Mapping[str, str]) -> bool:
    """Whether the ``trb`` that made it ran on this machine and is gone."""
    rest, _, born = labels.get(OWNER, "").rpartition("/")
    machine, _, number = rest.rpartition("/")
    if machine != platform.node() or not number.isdigit() or not born:
        return False
    pid = int(number)
    # A process whose start time this user may not see counts as the one that is meant.
    return not process.alive(pid) or registry.born(pid) not in (born, "")


def remove_strays(client: Any) -> list[str]:
    """Remove what a ``trb`` left that was killed together with its guard; the names of all of it."""
    removed = []
    where = {"label": TRB}
    for container in client.containers.list(all=True, filters=where, sparse=True):
        if stray(container.attrs.get("Labels") or {}):
            name = str((container.attrs.get("Names") or [container.id])[0]).lstrip("/")
            # Another may be removing it at this very moment.
            with suppress(*daemon.errors()):
                client.api.remove_container(container.id, force=True, v=True)
                removed.append(name)
    for volume in client.volumes.list(filters=where):
        if stray(volume.attrs.get("Labels") or {}):
            with suppress(*daemon.errors()):
                volume.remove(force=True)
                removed.append(str(volume.name))
    return removed
