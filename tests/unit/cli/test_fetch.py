"""``trb fetch`` on a clone whose weights are pointers of git LFS."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tests.support import cli
from triton_repo_builder.base.errors import Code

WEIGHTS = bytes(2000)


def test_pointers_of_git_lfs_are_named(tmp_path: Path) -> None:
    sha256 = hashlib.sha256(WEIGHTS).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(WEIGHTS)}\n"
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text('backend: "onnxruntime"\n')
    file = tmp_path / "m" / "1" / "model.onnx"
    file.write_text(pointer)
    record = {"sha256": sha256, "bytes": len(WEIGHTS)}
    document = {"schema": 1, "endpoints": {}, "files": {"m/1/model.onnx": record}}
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    done = cli.call("fetch", tmp_path)
    assert cli.kind(done.stderr) is Code.LFS_POINTER
    assert "m/1/model.onnx" in done.stderr
    assert "git lfs pull" in done.stderr
    file.write_bytes(WEIGHTS)
    done = cli.call("fetch", tmp_path)
    assert (done.returncode, "all its files are in git" in done.stdout) == (0, True)
