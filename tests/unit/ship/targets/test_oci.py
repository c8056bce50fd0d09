"""``trb export oci``: an image layout with the bytes that a push sends."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.support import deploy_files as files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship import rendered as folder
from triton_repo_builder.ship.stores import oci_layers, oci_manifest, revision
from triton_repo_builder.ship.targets import export, facts


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(facts.git, "last_commit", lambda path: "")
    return files.repository(tmp_path)


def test_every_blob_is_what_its_name_says(root: Path) -> None:
    contents = files.rendered("oci", files.read(root))
    assert json.loads(contents.pop("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads(contents.pop("index.json"))
    contents.pop("export.json")
    for path, content in contents.items():
        assert path == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"
    (image,) = index["manifests"]
    assert image["digest"] == oci_manifest.image(revision.collect(root)).digest
    manifest = json.loads(contents[f"blobs/sha256/{image['digest'][7:]}"])
    assert image["size"] == len(contents[f"blobs/sha256/{image['digest'][7:]}"])
    referred = {
        manifest["config"]["digest"],
        image["digest"],
        *(each["digest"] for each in manifest["layers"]),
    }
    assert {f"blobs/sha256/{digest[7:]}" for digest in referred} == set(contents)
    assert manifest["annotations"]["trb.revision"] == f"sha256:{revision.collect(root).index.digest}"


def test_a_folder_is_written_once_and_compared(root: Path, tmp_path: Path) -> None:
    rendered = export.render("oci", files.read(root))
    output = tmp_path / "layout"
    assert folder.write(rendered, output)
    assert folder.differences(rendered, output) == ()
    layer = max((output / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
    layer.write_bytes(layer.read_bytes()[:-1] + b"x")
    (change,) = folder.differences(rendered, output)
    assert (change.path, change.state, change.edited) == (f"blobs/sha256/{layer.name}", "differs", True)
    with pytest.raises(TrbError) as caught:
        folder.write(rendered, output)
    assert caught.value.code is Code.EDITED_FILE


def test_a_repository_that_changes_meanwhile_leaves_nothing(root: Path, tmp_path: Path) -> None:
    rendered = export.render("oci", files.read(root))
    model = root / "step" / "1" / "model.py"
    model.write_text(model.read_text().replace("x * 2", "x * 3"))
    output = tmp_path / "layout"
    with pytest.raises(TrbError, match="was changed while it was exported") as caught:
        folder.write(rendered, output)
    assert caught.value.code is Code.REPOSITORY_BUSY
    assert not [path for path in output.rglob("*") if path.is_file()]


def test_the_layers_are_streamed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (root / "step" / "1" / "weights.bin").open("wb") as file:
        file.truncate(20 << 20)
    contents = export.render("oci", files.read(root)).contents
    longest = max(
        len(block)
        for content in contents.values()
        if not isinstance(content, bytes)
        for block in content.blocks()
    )
    assert longest <= oci_layers.BLOCK
