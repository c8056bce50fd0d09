"""A repository is compared with its manifest: what is changed, gone, added or from other sources is named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny

from triton_repo_builder import repository
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.check import verified


@pytest.fixture
def built(tmp_path: Path) -> Path:
    tiny.put(tiny.classifier(tmp_path / "sentiment"), tmp_path / "repo")
    return tmp_path / "repo"


def refused(root: Path) -> str:
    with pytest.raises(TrbError) as error:
        verified.check(repository.read(root))
    assert error.value.code == Code.DIGEST_MISMATCH
    return error.value.message


def test_what_was_built_is_verified(built: Path) -> None:
    (built / "README.md").write_text("ours")
    assert verified.check(repository.read(built)) == len(
        json.loads((built / "manifest.json").read_text())["files"]
    )


def test_bytecode_is_refused(built: Path) -> None:
    """Python may run it in place of the source, and no digest covers it."""
    cache = built / "sentiment_tokenizer" / "1" / "__pycache__"
    cache.mkdir()
    (cache / "model.cpython-310.pyc").touch()
    assert str(cache) in refused(built)


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.unlink()  # it may be a hard link to the user's own
    file.write_bytes(bytes(data))


def add_version(file: Path) -> None:
    (file.parent.parent / "2").symlink_to(file.parent)


@pytest.mark.parametrize(
    ("path", "change", "line"),
    [
        (
            "sentiment_model/1/weights.onnx",
            flip,
            "sentiment_model/1/weights.onnx: changed since trb built it",
        ),
        (
            "sentiment_tokenizer/1/tokenizer.json",
            flip,
            "sentiment_tokenizer/1/tokenizer.json: changed since trb built it",
        ),
        (
            "sentiment_model/1/weights.onnx",
            Path.unlink,
            "sentiment_model/1/weights.onnx: manifest.json lists this file, but",
        ),
        (
            "sentiment_model/1/other.onnx",
            Path.touch,
            "sentiment_model/1/other.onnx: manifest.json does not list this file",
        ),
        (
            "sentiment_model/1/weights.onnx",
            add_version,
            "sentiment_model/2: manifest.json does not list this file",
        ),
        ("stranger/config.pbtxt", Path.touch, "stranger: manifest.json does not list this model"),
    ],
)
def test_each_difference_is_named(built: Path, path: str, change: Callable[[Path], None], line: str) -> None:
    (built / path).parent.mkdir(exist_ok=True)
    change(built / path)
    assert f"{built}/{line}" in refused(built)


def test_a_manifest_made_to_fit_still_has_other_sources_than_the_configurations(built: Path) -> None:
    config, file = built / "sentiment_model" / "config.pbtxt", built / "manifest.json"
    manifest = json.loads(file.read_text())
    digest = manifest["endpoints"]["sentiment"]["sources"][0]["sha256"]
    changed = config.read_text().replace(digest, "0" * 64).encode()
    config.write_bytes(changed)
    record = {"sha256": hashlib.sha256(changed).hexdigest(), "bytes": len(changed)}
    manifest["files"]["sentiment_model/config.pbtxt"] = record
    file.write_text(json.dumps(manifest))
    assert "sentiment_model/config.pbtxt: its trb.* parameters name other source files" in refused(built)


def test_without_a_manifest_there_is_nothing_to_compare_with(built: Path) -> None:
    (built / "manifest.json").unlink()
    with pytest.raises(TrbError) as error:
        verified.check(repository.read(built))
    assert error.value.code == Code.NOT_FOUND
