"""``trb export oci``: skopeo reads the layout and copies it; the image is the one that ``trb push`` sends."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from needs import unavailable

from tests.support import deploy_files as files
from tests.support import oci_registry
from tests.support.cli import trb
from triton_repo_builder.ship.stores import revision

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def docker_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with oci_registry.running(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a file that gets a layer of its own."""
    root = files.repository(tmp_path)
    (root / "step" / "1" / "weights.bin").write_bytes(bytes(range(256)) * 8192)
    return root


@pytest.fixture
def layout(root: Path, tmp_path: Path) -> Path:
    trb("export", "oci", files.write(root), "--output", tmp_path / "layout")
    return tmp_path / "layout"


def skopeo(*arguments: str) -> str:
    if shutil.which("skopeo") is None:
        unavailable("skopeo is not installed (apt-get install skopeo)")
    done = subprocess.run(
        ["skopeo", "--insecure-policy", *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_skopeo_reads_the_provenance(layout: Path, root: Path) -> None:
    about: dict[str, Any] = json.loads(skopeo("inspect", f"oci:{layout}"))
    assert about["Labels"]["trb.revision"] == f"sha256:{revision.collect(root).index.digest}"
    assert about["Digest"] == json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]
    assert len(about["Layers"]) == 3


def test_skopeo_sends_what_trb_push_would_send(
    layout: Path, root: Path, docker_registry: str, tmp_path: Path
) -> None:
    skopeo(
        "copy",
        "--preserve-digests",
        "--dest-tls-verify=false",
        f"oci:{layout}",
        f"docker://{docker_registry}/copied:1",
    )
    told = json.loads(trb("push", f"oci://{docker_registry}/copied:1", root, "--dry-run", "--json"))
    assert told["previous"] == told["revision"]
    assert told["sent"] == []
    trb("pull", f"oci://{docker_registry}/copied:1", tmp_path / "pulled")
    assert tiny.tree(tmp_path / "pulled") == tiny.tree(root)


def test_skopeo_pulls_the_layout_of_a_push(
    layout: Path, root: Path, docker_registry: str, tmp_path: Path
) -> None:
    """The other way round: a pushed image, copied into a folder, has the blobs of the export."""
    trb("push", f"oci://{docker_registry}/pushed:1", root)
    folder = tmp_path / "copied"
    source = f"docker://{docker_registry}/pushed:1"
    skopeo("copy", "--preserve-digests", "--src-tls-verify=false", source, f"oci:{folder}")
    assert tiny.tree(folder / "blobs") == tiny.tree(layout / "blobs")
