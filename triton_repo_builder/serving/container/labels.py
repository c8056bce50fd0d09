"""What marks a container or volume as made by ``trb``, and by which process."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triton_repo_builder import __version__, process
from triton_repo_builder.serving import state

TRB = "io.github.triton-repo-builder"
REPOSITORY = f"{TRB}.repository"
OWNER = f"{TRB}.owner"
"""``machine/pid/start time`` of the ``trb`` that looks after it."""


def mine(repository: Path) -> dict[str, str]:
    """Labels for what this process makes."""
    return {TRB: __version__, REPOSITORY: str(repository), OWNER: owner(os.getpid())}


def owner(pid: int) -> str:
    """A process, told from any later one with its id and from those of other machines."""
    return f"{platform.node()}/{pid}/{state.born(pid)}"


def stray(labels: Mapping[str, str]) -> bool:
    """Whether the ``trb`` that made it ran on this machine and is gone."""
    machine, _, rest = labels.get(OWNER, "").rpartition("/")[0].rpartition("/")
    if machine != platform.node() or not rest.isdigit():
        return False
    return not process.alive(int(rest)) or owner(int(rest)) != labels[OWNER]


def strays(client: Any) -> list[Any]:
    """Containers whose ``trb`` is gone."""
    found = client.containers.list(all=True, filters={"label": TRB})
    return [container for container in found if stray(container.labels)]


def remove_strays(client: Any) -> list[str]:
    """Remove what a ``trb`` left that was killed together with its guard; their names."""
    import docker

    names = []
    for container in strays(client):
        try:
            container.remove(force=True, v=True)
        except docker.errors.NotFound:
            continue
        names.append(container.name)
    for volume in client.volumes.list(filters={"label": TRB}):
        if stray(volume.attrs.get("Labels") or {}):
            try:
                volume.remove(force=True)
            except docker.errors.APIError:
                continue
    return names
