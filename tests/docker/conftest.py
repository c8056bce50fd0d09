"""A real Docker Engine, the slim image, and what to do where there is none."""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from needs import unavailable

from tests.support import prometheus
from tests.support import serve_repository as made
from tests.support.cli import trb
from triton_repo_builder.base import process
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.run.serve.docker import cleanup, daemon
from triton_repo_builder.ship import container_image
from triton_repo_builder.ship.container_image import wheels as lists

ROOT = Path(__file__).resolve().parents[2]
BASE = "debian:bookworm-slim"
SLIM = "trb-test:slim"
GATEWAY = "trb-test:gateway"
TRAEFIK = ROOT / ".cache" / "traefik" / "traefik"


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
def gateway_image(
    client: Any, slim: str, wheels: Path, minilm: Path, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """An image with the gateway and a repository."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *lists.pinned(gateway=True)]
    process.run([*pip, "--find-links", str(wheels), "-d", str(wheels)], timeout=600)
    folder = tmp_path_factory.mktemp("image")
    arguments = ("--gateway", "--base", BASE, "--repository", str(minilm), "--wheels", str(wheels))
    said = made.trb(folder, "image", "build", *arguments, "--tag", GATEWAY)
    assert said.returncode == 0, said.stderr
    return GATEWAY


@pytest.fixture(scope="session")
def traefik_image(client: Any) -> str:
    """Traefik of PyPI's wheel, laid out as its own image is."""
    if not TRAEFIK.is_file():
        unavailable(f"there is no {TRAEFIK}; .ci/traefik puts it there")
    dockerfile = f"""FROM {BASE}
COPY traefik /usr/local/bin/traefik
CMD ["traefik"]
"""
    return image(client, "trb-test:traefik", dockerfile, {"traefik": TRAEFIK.read_bytes()})


@pytest.fixture(scope="session")
def prometheus_image(client: Any) -> str:
    """Debian's Prometheus, laid out as its project's image is."""
    binaries = {name: prometheus.binary(name) for name in ("prometheus", "promtool")}
    files = {name: Path(path).read_bytes() for name, path in binaries.items() if path}
    if len(files) < len(binaries):
        unavailable("there is no Prometheus; .ci/prometheus unpacks one")
    dockerfile = f"""FROM {BASE}
COPY prometheus promtool /usr/local/bin/
RUN mkdir /prometheus && chown 65534:65534 /prometheus
ENTRYPOINT ["prometheus"]
"""
    return image(client, "trb-test:prometheus", dockerfile, files)


def image(client: Any, tag: str, dockerfile: str, files: Mapping[str, bytes]) -> str:
    """Build an image of these files; an unchanged one comes from the cache."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        for name, content in {"Dockerfile": dockerfile.encode(), **files}.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    context.seek(0)
    client.images.build(fileobj=context, custom_context=True, tag=tag, rm=True, forcerm=True)
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
