"""What arrives from outside is kept only if it is the expected file."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from triton_repo_builder.base import process, transfer
from triton_repo_builder.base.errors import Code, TrbError

CONTENT = b"weights"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def test_the_expected_file_is_kept_and_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "w.bin"
    assert transfer.receive(iter([b"wei", b"", b"ghts"]), target, SHA256, len(CONTENT), "there") == SHA256
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_another_file_is_not_kept_and_the_old_one_stays(tmp_path: Path) -> None:
    target = tmp_path / "w.bin"
    target.write_bytes(b"old")
    actual = transfer.receive(iter([b"evil"]), target, SHA256, len(CONTENT), "there")
    assert actual == hashlib.sha256(b"evil").hexdigest()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_what_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield CONTENT
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        transfer.receive(broken(), tmp_path / "w.bin", SHA256, len(CONTENT), "there")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["../evil", "/etc/passwd", "a/../../evil", "a\\..\\evil", "", "link/evil"])
def test_paths_that_lead_outside(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    with pytest.raises(TrbError) as caught:
        transfer.check_inside(path, "there", root)
    assert (caught.value.code, caught.value.where) == (Code.DIGEST_MISMATCH, "there")


def test_paths_that_stay_inside(tmp_path: Path) -> None:
    for path in ("a", "a/b..c", "new/folder/file"):
        transfer.check_inside(path, "there", tmp_path)


def test_the_cache_is_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert transfer.cache_folder() == tmp_path / ".cache" / "trb"


def test_without_pip_in_this_environment_another_pip_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/pip" if name == "pip" else None)
    assert transfer.pip() == ["/usr/bin/pip"]


def test_without_any_pip_the_error_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(argv: list[str], timeout: float) -> str:
        raise FileNotFoundError(2, "No such file or directory", "pip")

    monkeypatch.setattr(process, "run", run)
    with pytest.raises(TrbError) as caught:
        transfer.wheel("x==1", SHA256, tmp_path, label="x 1", remedy="install pip")
    assert (caught.value.code, caught.value.remedy) == (Code.DOWNLOAD_FAILED, "install pip")
    assert "'pip'" in caught.value.message


@pytest.mark.parametrize("size", [len(CONTENT) - 1, len(CONTENT) + 1])
def test_another_size_than_stated_is_not_kept(tmp_path: Path, size: int) -> None:
    with pytest.raises(TrbError) as caught:
        transfer.receive(iter([CONTENT]), tmp_path / "w.bin", SHA256, size, "there")
    assert (caught.value.code, caught.value.where) == (Code.DIGEST_MISMATCH, "there")
    assert list(tmp_path.iterdir()) == []


def test_an_action_that_does_not_end() -> None:
    with pytest.raises(TrbError) as caught:
        transfer.within(0.01, threading.Event().wait, "there")
    assert caught.value.code is Code.STORAGE_UNREACHABLE
    assert transfer.within(60, lambda: 5, "there") == 5
    with pytest.raises(KeyError):
        transfer.within(60, lambda: {}[1], "there")
