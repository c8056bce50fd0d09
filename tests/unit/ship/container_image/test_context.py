"""The build context of the slim image."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import pytest

from triton_repo_builder.base import resources
from triton_repo_builder.ship.container_image import context, wheels


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


def test_the_gateway_is_there_only_if_asked_for() -> None:
    def names(gateway: bool) -> set[str]:
        sink = io.BytesIO()
        context.write(context.ImageRequest(tag="t", gateway=gateway), sink)
        sink.seek(0)
        with tarfile.open(fileobj=sink) as tar:
            return {member.name for member in tar if member.name.startswith("gateway")}

    assert names(False) == {"gateway"}
    package = "gateway/triton_repo_builder"
    files = ("__main__.py", "run/gateway/app.py", "run/gateway/page/index.html")
    assert {f"gateway/{wheels.GATEWAY}", *(f"{package}/{file}" for file in files)} < names(True)
    assert not any("__pycache__" in name for name in names(True))


def test_the_packages_of_the_gateway_are_those_of_the_constraints() -> None:
    lines = (Path(__file__).parents[4] / "constraints.txt").read_text().splitlines()
    constraints = {line.split(";")[0] for line in lines}
    added = {*wheels.pinned(gateway=True)} - {*wheels.pinned()}
    assert len(added) > 8 and added <= constraints
