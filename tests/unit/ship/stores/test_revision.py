"""What a revision is."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Manifest
from triton_repo_builder.ship.stores import revision


def test_a_revision_is_its_files_and_nothing_else(repository: Path) -> None:
    local = revision.collect(repository)
    assert [entry.path for entry in local.index.entries] == [
        "README.md",
        "e/1/.gitkeep",
        "e/config.pbtxt",
        "m/1/model.py",
        "m/1/weights.bin",
        "m/config.pbtxt",
    ]
    (repository / "m" / "1" / "model.py").chmod(0o700)
    (repository / "e" / "1" / ".gitkeep").touch()
    assert revision.collect(repository).index.digest == local.index.digest
    (repository / "m" / "1" / "model.py").write_bytes(b"edoc")
    assert revision.collect(repository).index.digest != local.index.digest
    read = revision.read_index(local.index.document, local.index.digest, "here")
    assert read == local.index


def test_a_link_within_is_followed(repository: Path) -> None:
    code = repository / "m" / "1" / "model.py"
    (repository / "m" / "1" / "copy.py").write_bytes(code.read_bytes())
    digest = revision.collect(repository).index.digest
    code.unlink()
    code.symlink_to("copy.py")
    assert revision.collect(repository).index.digest == digest


@pytest.mark.parametrize("target", ["nowhere", "../../../elsewhere.py", "/dev/zero"])
def test_a_link_that_is_broken_or_leads_out_is_named(repository: Path, target: str) -> None:
    (repository.parent / "elsewhere.py").write_text("secret")
    code = repository / "m" / "1" / "model.py"
    code.unlink()
    code.symlink_to(target)
    with pytest.raises(TrbError) as caught:
        revision.collect(repository)
    assert (caught.value.code, caught.value.where) == (Code.REPOSITORY_UNREADABLE, str(code))


@pytest.mark.parametrize("path", ["../evil", "/etc/passwd", "a/../../evil", "a\\..\\evil", ""])
def test_an_index_that_leads_outside_is_refused(path: str) -> None:
    document = json.dumps({"files": {path: {"sha256": "0", "bytes": 0}}}).encode()
    with pytest.raises(TrbError) as caught:
        revision.read_index(document, hashlib.sha256(document).hexdigest(), "s3://x")
    assert caught.value.code == Code.DIGEST_MISMATCH
    assert "outside" in caught.value.message


def test_labels_say_what_was_built_from_what() -> None:
    manifest = {
        "generator": {"name": "triton_repo_builder", "version": "1.2"},
        "endpoints": {
            "bert": {
                "models": ["bert"],
                "version": 1,
                "max_batch_size": 0,
                "inputs": [],
                "outputs": [],
                "sources": [{"file": "model.onnx", "sha256": "12"}],
                "provenance": {"source_run": "run 7", "labels": {"team": "nlp"}},
            }
        },
        "files": {},
    }
    assert revision.labels(Manifest.of_json(manifest)) == {
        "trb.version": "1.2",
        "trb.bert.source.model.onnx": "sha256:12",
        "trb.bert.source_run": "run 7",
        "trb.bert.labels": '{"team": "nlp"}',
    }
    assert revision.labels(None) == {}
