"""The build context of the slim image."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import pytest

from triton_repo_builder.base import resources
from triton_repo_builder.ship.container_image import context


def test_scripts_are_executable_whatever_the_disk_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel loses the executable bit, and the container would not start."""
    docker = tmp_path / "docker"
    docker.mkdir()
    for name in context.FILES:
        shutil.copyfile(resources.docker() / name, docker / name)
        (docker / name).chmod(0o644)
    monkeypatch.setattr(resources, "docker", lambda: docker)
    sink = io.BytesIO()
    context.write(context.ImageRequest(tag="t"), sink)
    sink.seek(0)
    with tarfile.open(fileobj=sink) as tar:
        modes = {member.name: member.mode for member in tar if member.name in context.FILES}
    assert modes == {name: 0o755 if name.endswith(".sh") else 0o644 for name in context.FILES}
