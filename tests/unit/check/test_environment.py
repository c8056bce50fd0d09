"""Archives of Python environments, as the server unpacks them: libarchive, for tar only (seen on 24.10)."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from triton_repo_builder.check import environment

PLAIN = "bin/activate"


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    environment._fault.cache_clear()


def archive(*names: str, size: int = 1) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = size
            tar.addfile(member, io.BytesIO(bytes(size)))
    return content.getvalue()


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("name", [PLAIN, f"./{PLAIN}"])
def test_the_script_is_found_in_any_compression(
    tmp_path: Path, compress: Callable[[bytes], bytes], name: str
) -> None:
    file = tmp_path / "env"
    file.write_bytes(compress(archive("lib/x", name)))
    assert environment.fault(file) == ("", "")


def test_the_folder_itself_was_packed(tmp_path: Path) -> None:
    file = tmp_path / "env.tar.gz"
    file.write_bytes(gzip.compress(archive("env/bin/python", f"env/{PLAIN}")))
    message, remedy = environment.fault(file)
    assert "bin/activate does not exist" in message
    assert remedy == "pack what is in env/, not the folder: tar -C env -czf env.tar.gz ."


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\3\4", b"text", gzip.compress(b"text"), b"BZhnone", gzip.compress(archive("a"))[:20]],
    ids=["empty", "zip", "text", "compressed-text", "bzip2-damaged", "cut-off"],
)
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "env"
    file.write_bytes(content)
    assert environment.fault(file)[0] == f"{file} is not an archive: the server cannot unpack it"


@pytest.mark.parametrize(
    "content",
    [b"\x28\xb5\x2f\xfd", gzip.compress(archive("lib/x", "y", size=9999))[:-30]],
    ids=["zstd", "cut-off"],
)
def test_what_is_not_to_be_seen_is_no_fault(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "env"
    file.write_bytes(content)
    assert environment.fault(file) == ("", "")


def test_no_more_members_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "env"
    file.write_bytes(archive("a", "b", "c"))
    assert "bin/activate does not exist" in environment.fault(file)[0]
    monkeypatch.setattr(environment, "MOST", 2)
    environment._fault.cache_clear()
    assert environment.fault(file) == ("", "")


def test_no_more_than_the_limit_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "LONGEST", 20_000)
    file = tmp_path / "env"
    file.write_bytes(gzip.compress(archive("lib/a", "lib/b", size=100_000)))
    assert environment.fault(file) == ("", "")
