"""A real Docker Engine, the slim image, and what to do where there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import unavailable

from tests.support import serve_repository as made
from tests.support.cli import trb
from triton_repo_builder.base import process
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.run.serve.docker import cleanup, daemon
from triton_repo_builder.ship import container_image

ROOT = Path(__file__).resolve().parents[2]
BASE = "debian:bookworm-slim"
SLIM = "trb-test:slim"


@pytest.fixture(scope="session")
def client() -> Any:
    try:
        return daemon.connect()
    except TrbError as error:
        unavailable(f"{error}; .ci/docker installs and starts one")


@pytest.fixture(scope="session")
def wheels() -> Path:
    """The wheels of the slim image, fetched once: containers need no network for them."""
    folder = ROOT / ".cache" / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    names = (ROOT / "docker" / "requirements.txt").read_text().split("\n")
    if len(list(folder.glob("*.whl"))) < sum("==" in name for name in names):
        requirements = str(ROOT / "docker" / "requirements.txt")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-r", requirements]
        process.run([*pip, "-d", str(folder)], timeout=600)
    return folder


@pytest.fixture(scope="session")
def slim(client: Any) -> str:
    """The slim image, built as a user would: containers may or may not reach a package index."""
    import docker

    try:
        client.images.get(BASE)
    except docker.errors.ImageNotFound:
        unavailable(f"there is no image {BASE}; .ci/docker makes it, or: docker pull {BASE}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(ROOT / ".cache"))
        tag = container_image.build(container_image.ImageRequest(tag=SLIM, base=BASE)).tag
    assert not images_of(client)
    return tag


@pytest.fixture(scope="session")
def minilm(minilm_int8: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of a real model."""
    target = tmp_path_factory.mktemp("docker") / "model_repository"
    argv = ["build", "--model", str(minilm_int8), "--name", "minilm", "--output", str(target)]
    trb(*argv)
    return target


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two small Python models, one behind an ensemble."""
    return made.whole(tmp_path / "repository")


@pytest.fixture(autouse=True)
def nothing_left(client: Any) -> Iterator[None]:
    """Every test leaves the daemon as it found it."""
    before = dangling(client)
    yield
    made.until(lambda: not ours(client) and dangling(client) <= before)


def dangling(client: Any) -> set[str]:
    """Images without a name."""
    return {image.id for image in client.images.list(filters={"dangling": True})}


def images_of(client: Any) -> list[str]:
    """Unnamed images that builds of trb made, and what keeps them."""
    found = []
    for image in client.images.list(filters={"dangling": True, "label": cleanup.BUILD}):
        users = client.api.containers(all=True, filters={"ancestor": image.id})
        found.append(f"{image.id} of {image.labels[cleanup.BUILD]}, used by {users}")
    return found


def ours(client: Any) -> list[str]:
    """Containers and volumes that trb made and that are still there."""
    where = {"label": cleanup.TRB}
    containers = [one.name for one in client.containers.list(all=True, filters=where, ignore_removed=True)]
    return containers + [one.name for one in client.volumes.list(filters=where)]
