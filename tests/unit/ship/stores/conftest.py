"""A repository to push."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_repo_builder.ship.stores import oci_layers


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    for name, data in {
        "m/config.pbtxt": b'backend: "python"\n',
        "m/1/model.py": b"code",
        "m/1/weights.bin": bytes(3) * oci_layers.LARGE,
        "e/config.pbtxt": b'platform: "ensemble"\n',
        "README.md": b"",
        ".git/HEAD": b"not ours",
        "m/1/__pycache__/model.pyc": b"not ours",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "e" / "1").mkdir()
    return root
