"""The release that ``--triton-release auto`` stands for: the engine's, confirmed by the label of an image."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.manifest import Manifest
from triton_repo_builder.run.serve import release
from triton_repo_builder.run.serve.docker import daemon
from triton_repo_builder.run.serve.embedded import install

OFFICIAL = "nvcr.io/nvidia/tritonserver:{}-py3"
LABEL = "com.nvidia.tritonserver.version"
OWN = "io.github.triton-repo-builder.server"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Say what a machine has: ``machine(embedded=…, images={name: labels}, docker=…)``."""

    def has(*, embedded: bool = True, images: dict[str, Any] | None = None, docker: bool = True) -> None:
        def find() -> None:
            if not embedded:
                raise TrbError(Code.ENGINE_MISSING, "not installed")

        def get(name: str) -> Any:
            return SimpleNamespace(labels=(images or {})[name])

        client = SimpleNamespace(images=SimpleNamespace(get=get), close=lambda: None)
        monkeypatch.setattr(install, "find", find)
        monkeypatch.setattr(daemon, "configured", lambda: docker)
        monkeypatch.setattr(daemon, "connect", lambda: client)
        monkeypatch.setattr(daemon, "errors", lambda: (KeyError,))

    return has


PULLED = {
    OFFICIAL.format("25.01"): {LABEL: "2.54.0"},
    OFFICIAL.format("26.06"): {LABEL: "2.70.0"},
    # A tag that the label contradicts, and an image without any.
    OFFICIAL.format("26.07"): {LABEL: "2.70.0"},
    OFFICIAL.format("26.08"): None,
}


@pytest.mark.parametrize(
    ("has", "engine", "name", "source"),
    [
        ({"images": PULLED}, "auto", "24.10", "embedded"),
        ({"images": PULLED}, "embedded", "24.10", "embedded"),
        ({"images": PULLED}, "docker", "26.06", "image"),
        ({"images": {}}, "docker", releases.newest().name, "newest"),
        ({"docker": False}, "docker", releases.newest().name, "newest"),
        ({"embedded": False, "images": PULLED}, "auto", "26.06", "image"),
        # Nothing is here that could run it, or only what would have to be pulled first.
        ({"embedded": False, "images": {}}, "auto", "24.10", "embedded"),
        ({"embedded": False, "docker": False}, "auto", "24.10", "embedded"),
    ],
)
def test_which_release(machine: Any, has: dict[str, Any], engine: str, name: str, source: str) -> None:
    machine(**has)
    target = release.target(engine)
    assert (target.release.name, target.source) == (name, source)
    assert target.why


@pytest.mark.parametrize(
    ("image", "labels", "name"),
    [
        ("mine:1", {LABEL: "2.70.0"}, "26.06"),
        ("mine:1", {OWN: "2.51.0"}, "24.10"),
        (OFFICIAL.format("26.07"), {LABEL: "2.70.0"}, "26.06"),
        (OFFICIAL.format("26.07"), None, "26.07"),
        ("mine:1", {LABEL: "3.1.0"}, releases.newest().name),
    ],
)
def test_the_release_of_an_image(machine: Any, image: str, labels: dict[str, str] | None, name: str) -> None:
    machine(images={image: labels})
    target = release.target("auto", image)
    assert (target.release.name, target.source) == (name, "image")
    assert image in target.why


def test_an_image_that_is_not_here_is_known_by_its_tag_alone(machine: Any) -> None:
    machine(docker=False)
    assert release.target("docker", OFFICIAL.format("26.05")).release.name == "26.05"
    with pytest.raises(TrbError) as caught:
        release.target("docker", "mine:1")
    assert (caught.value.code, caught.value.where) == (Code.USAGE, "mine:1")


def test_a_daemon_that_does_not_answer_confirms_nothing(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(images=PULLED)

    def connect() -> None:
        raise TrbError(Code.DAEMON_UNREACHABLE, "no daemon")

    monkeypatch.setattr(daemon, "connect", connect)
    assert release.target("docker").source == "newest"
    with pytest.raises(TrbError):
        release.target("auto", "mine:1")


@pytest.mark.parametrize(
    ("listed", "name"),
    [([], None), (["24.10"], "24.10"), (["26.06", "24.10"], "26.06"), (["99.01", "25.01"], "25.01")],
)
def test_an_image_for_a_repository(listed: list[str], name: str | None) -> None:
    endpoints = {
        str(number): SimpleNamespace(served=SimpleNamespace(triton_release=each))
        for number, each in enumerate(listed)
    }
    found = release.of_manifest(Manifest(endpoints=endpoints))  # type: ignore[arg-type]
    assert (found.name if found else None) == name
