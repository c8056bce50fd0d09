"""The file of an admin key, and to which server the key goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client import RequestFailed, admin_key

KEY = "0123456789abcdef"
URL = "http://gpu-7:8000"


def written(tmp_path: Path, content: bytes, mode: int = 0o600) -> Path:
    file = tmp_path / "key"
    file.write_bytes(content)
    file.chmod(mode)
    return file


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("key", [KEY, "with,:=\"'~!" + KEY, "x" * 1024])
def test_the_key_is_the_line_of_the_file(tmp_path: Path, key: str, end: bytes) -> None:
    assert admin_key.read(written(tmp_path, key.encode() + end)) == key


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        KEY[1:].encode() + b"\n",
        b"two words 0123456789",
        b" " + KEY.encode(),
        KEY.encode() + b"\n" + KEY.encode(),
        KEY.encode() + b"\n\n",
        KEY.encode() + "é".encode(),
        KEY.encode() + b"\0",
        b"x" * 1025,
        b"x" * 100_000,
    ],
)
def test_what_is_no_key(tmp_path: Path, content: bytes) -> None:
    file = written(tmp_path, content)
    with pytest.raises(TrbError) as error:
        admin_key.read(file)
    assert (error.value.code, error.value.where) == (Code.USAGE, str(file))
    assert "openssl rand" in error.value.remedy


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644])
def test_a_file_of_others_is_refused(tmp_path: Path, mode: int) -> None:
    file = written(tmp_path, KEY.encode(), mode)
    with pytest.raises(TrbError) as error:
        admin_key.read(file)
    assert (error.value.code, error.value.where) == (Code.USAGE, str(file))
    assert f"chmod 600 {file}" in error.value.remedy


@pytest.mark.parametrize("name", ["nothing", "."])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(TrbError) as error:
        admin_key.read(tmp_path / name)
    assert error.value.code == Code.NOT_FOUND


def test_a_key_goes_to_its_own_server_only() -> None:
    admin_key.remember("gpu-7:8000", KEY)
    try:
        assert admin_key.headers(URL) == {"admin-key": KEY}
        for other in ("http://gpu-7:8003", "http://gpu-8:8000", "http://gpu-7", "http://gpu-7:x"):
            assert admin_key.headers(other) == {}
    finally:
        admin_key.forget(URL)
    assert admin_key.headers(URL) == {}


def test_which_refusal_is_about_the_key() -> None:
    def refusal(header: str) -> RequestFailed:
        return RequestFailed("refused", "403", f"This API is restricted, expecting header '{header}'")

    admin_key.check(URL, RequestFailed("refused", "400", "no such model"))
    admin_key.check(URL, refusal("someone-elses"))
    with pytest.raises(TrbError) as missing:
        admin_key.check(URL, refusal("admin-key"))
    admin_key.remember(URL, KEY)
    try:
        with pytest.raises(TrbError) as wrong:
            admin_key.check(URL, refusal("admin-key"))
    finally:
        admin_key.forget(URL)
    assert missing.value.code == wrong.value.code == Code.ADMIN_KEY
    assert missing.value.message != wrong.value.message
    assert KEY not in str(wrong.value)


def test_a_key_by_another_name_is_named() -> None:
    admin_key.refuse_other(URL, "no such model")
    for header in ("ops-key", "triton-grpc-protocol-ops-key"):
        with pytest.raises(TrbError) as caught:
            admin_key.refuse_other(URL, f"This API is restricted, expecting header '{header}'")
        assert (caught.value.code, "'ops-key'" in caught.value.message) == (Code.ADMIN_KEY, True)
        assert "--admin-key" in caught.value.remedy
