"""Who owns a private key, and who else could read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from triton_repo_builder.base import private_file


@pytest.fixture
def key(tmp_path: Path) -> Path:
    (tmp_path / "key").touch(0o600)
    (tmp_path / "key").write_bytes(b"0123456789")
    return tmp_path / "key"


def test_a_key_of_this_user(key: Path) -> None:
    assert private_file.read(key, 4) == (b"0123", "")
    key.chmod(0o400)
    assert private_file.read(key, 99) == (b"0123456789", "")


@pytest.mark.parametrize("mode", [0o601, 0o610, 0o640, 0o604, 0o660, 0o777])
def test_a_key_that_others_can_get_at(key: Path, mode: int) -> None:
    key.chmod(mode)
    assert f"mode {mode:o}" in private_file.read(key, 99)[1]


def test_the_owner(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = key.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    exposed = private_file.read(key, 99)[1]
    assert (exposed == "") is (owner == 0)  # root's key is as good as one's own
    facts = os.stat_result((0o100600, 0, 0, 1, 4711, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "fstat", lambda descriptor: facts)
    assert "another user (uid 4711)" in private_file.read(key, 99)[1]
