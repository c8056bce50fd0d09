"""The slim image: what is in it, that it serves a baked-in repository, and that it is made the same twice."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.docker.conftest import BASE, ROOT, images_of
from tests.support import serve_repository as made
from tests.support import sleeper
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code
from triton_repo_builder.run.serve.docker import cleanup
from triton_repo_builder.ship import container_image

pytestmark = pytest.mark.docker
CODE = "python-import"


def test_it_is_small_and_confined(client: Any, slim: str) -> None:
    found = client.images.get(slim).attrs
    config = found["Config"]
    assert config["User"] == "1000:1000"
    assert config["Healthcheck"]["Test"][0] == "CMD"
    assert config["Entrypoint"] == ["/opt/tritonserver/entrypoint.sh"]
    assert config["Labels"]["org.opencontainers.image.version"] == "24.10"
    own = found["Size"] - client.images.get(BASE).attrs["Size"]
    assert own < 400e6, f"{own / 1e6:.0f} MB beyond the base image"
    said = client.containers.run(slim, ["id", "-u"], remove=True)
    assert said == b"1000\n"


def test_a_baked_in_repository_is_served_and_healthy(
    tmp_path: Path, client: Any, slim: str, wheels: Path, minilm: Path
) -> None:
    tag = "trb-test:baked"
    said = made.trb(
        tmp_path,
        "image",
        "build",
        "--repository",
        str(minilm),
        "--tag",
        tag,
        "--wheels",
        str(wheels),
        "--json",
    )
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["tag"] == tag
    # A deploy.toml whose source is the image states the revision that the image has.
    made.trb(tmp_path, "deploy", "init", str(minilm), "--image", tag, "--source", "image", cwd=tmp_path)
    stated = files.load_toml((tmp_path / "deploy.toml").read_text())["repository"]["revision"]
    assert client.images.get(tag).labels["io.github.triton-repo-builder.revision"] == stated
    running = client.containers.run(
        tag,
        detach=True,
        shm_size="256m",
        read_only=True,
        tmpfs={"/tmp": ""},
        cap_drop=["ALL"],
        ports={"8000/tcp": ("127.0.0.1", None)},
    )
    try:

        def health() -> str:
            running.reload()
            return str(running.attrs["State"]["Health"]["Status"])

        made.until(lambda: health() == "healthy", 90)
        port = running.attrs["NetworkSettings"]["Ports"]["8000/tcp"][0]["HostPort"]
        body = {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["hello"]}]}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v2/models/minilm/infer",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            assert json.load(response)["outputs"][0]["shape"] == [1, 384]
    finally:
        running.remove(force=True)
        client.images.remove(tag)


def test_check_knows_the_modules_of_the_image(
    tmp_path: Path, slim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(ROOT / ".cache"))
    model = sleeper.write(tmp_path) / "sleeper" / "1" / "model.py"
    model.write_text(f"import onnxruntime\nimport torch\n{model.read_text()}")
    stock = made.trb(tmp_path, "check", "repository", "--json", cwd=tmp_path)
    (message,) = (finding["message"] for finding in json.loads(stock.stdout) if finding["code"] == CODE)
    assert message.startswith("modules 'onnxruntime', 'torch' are not in the stock image")
    known = made.trb(tmp_path, "check", "repository", "--modules", slim, "--json", cwd=tmp_path)
    (message,) = (finding["message"] for finding in json.loads(known.stdout) if finding["code"] == CODE)
    assert message == "module 'torch' is not in the image"


def test_a_wheel_that_is_missing_is_named(tmp_path: Path, client: Any) -> None:
    (tmp_path / "wheels").mkdir()
    said = made.trb(tmp_path, "image", "build", "--wheels", str(tmp_path / "wheels"))
    assert said.returncode == Code.NOT_FOUND.exit
    assert "has no wheel of numpy==1.26.4" in said.stderr
    assert "pip download" in said.stderr


def test_a_build_that_fails_shows_why_and_keeps_the_old_image(
    tmp_path: Path, client: Any, slim: str, wheels: Path
) -> None:
    before = client.images.get(slim).id
    said = made.trb(
        tmp_path, "image", "build", "--wheels", str(wheels), "--base", slim, "--tag", slim, "--no-cache"
    )
    assert said.returncode == Code.IMAGE_UNAVAILABLE.exit
    assert "must be a Debian or Ubuntu image" in said.stderr
    assert client.images.get(slim).id == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_build_that_is_interrupted_leaves_nothing(
    tmp_path: Path, client: Any, slim: str, wheels: Path, number: int
) -> None:
    argv = ["image", "build", "--wheels", str(wheels), "--tag", "trb-test:never", "--verbose"]
    with (tmp_path / "err").open("wb") as err:
        running = subprocess.Popen([sys.executable, "-m", "triton_repo_builder", *argv], stderr=err)
        try:
            made.until(lambda: b"Step 5/" in (tmp_path / "err").read_bytes(), 60)
            assert images_of(client), "its first stage"
        finally:
            running.send_signal(number)
        running.wait(60)
    if number == signal.SIGKILL:
        # What nobody could remove, the next build does.
        made.until(lambda: not cleanup.remove_dangling(client) and not images_of(client), 60)
    assert not images_of(client)


def test_a_step_that_outlives_its_build_is_ended(tmp_path: Path, client: Any, slim: str) -> None:
    gone = subprocess.Popen(["sleep", "60"])
    builder = cleanup.owner(gone.pid)
    gone.kill()
    gone.wait()
    made_by = f"FROM {BASE}\nLABEL {cleanup.BUILD}={builder}"
    images = []
    for stage in ("", f" {cleanup.STAGE}=assembled"):
        (tmp_path / "Dockerfile").write_text(made_by + stage)
        images.append(client.images.build(path=str(tmp_path), nocache=True, rm=True)[0])
    served, _ = [client.containers.run(image.id, ["sleep", "60"], detach=True) for image in images]
    try:
        cleanup.remove_dangling(client)
        (kept,) = images_of(client)
        assert images[0].id in kept, "a container of the user's own keeps its image"
        assert [one.id for one in client.containers.list(all=True)] == [served.id]
    finally:
        served.remove(force=True)
    cleanup.remove_dangling(client)
    assert not images_of(client)


def test_two_builds_hold_the_same_files(client: Any, slim: str, wheels: Path) -> None:
    tag = "trb-test:again"
    container_image.build(container_image.ImageRequest(tag=tag, base=BASE, wheels=wheels, cache=False))
    try:
        assert content(client, slim) == content(client, tag)
    finally:
        client.images.remove(tag)


def content(client: Any, tag: str) -> dict[str, tuple[int, int, int, str]]:
    """Mode, owner, size and digest of every file in an image."""
    container = client.containers.create(tag)
    found = {}
    try:
        with tempfile.TemporaryFile() as file:
            for chunk in container.export():
                file.write(chunk)
            file.seek(0)
            with tarfile.open(fileobj=file) as tar:
                for member in tar:
                    data = tar.extractfile(member) if member.isreg() else None
                    digest = hashlib.sha256(data.read()).hexdigest() if data else member.linkname
                    found[member.name] = (member.mode, member.uid, member.size, digest)
    finally:
        container.remove()
    return found
