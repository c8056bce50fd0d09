"""What ``trb push`` wrote to a registry is an image that a real container runtime unpacks."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support import serve_repository as made

pytestmark = pytest.mark.docker


def test_docker_pulls_it_and_finds_the_models(
    tmp_path: Path, client: Any, docker_registry: str, repository: Path
) -> None:
    (repository / "whole" / "1" / ".gitkeep").unlink()
    pushed = made.trb(tmp_path, "push", f"oci://{docker_registry}/pulled:1", str(repository), "--json")
    assert pushed.returncode == 0, pushed.stderr
    told = json.loads(pushed.stdout)
    image = client.images.pull(f"{docker_registry}/pulled", tag="1")
    container = client.containers.create(image, command="none")
    try:
        assert image.labels == told["labels"]
        blocks, _ = container.get_archive("/models")
        with tarfile.open(fileobj=io.BytesIO(b"".join(blocks))) as archive:
            names = {member.name for member in archive if member.isreg()}
            code = archive.extractfile("models/step/1/model.py")
            assert code is not None
            assert code.read() == (repository / "step" / "1" / "model.py").read_bytes()
        assert names == {
            "models/step/config.pbtxt",
            "models/step/1/model.py",
            "models/whole/config.pbtxt",
            "models/whole/1/.gitkeep",
        }
    finally:
        container.remove()
        client.images.remove(image.id, force=True)
