"""API keys of a file."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.gateway import api_keys
from triton_repo_builder.run.gateway.access import Log
from triton_repo_builder.run.gateway.api_keys import ApiKeys
from triton_repo_builder.run.gateway.refusal import Refusal

PLAIN = "a-key-of-some-length"
OTHER = "another-key-of-length"
HASH = "sha256:" + hashlib.sha256(OTHER.encode()).hexdigest()


def file(tmp_path: Path, *lines: str, mode: int = 0o600) -> Path:
    path = tmp_path / "keys"
    path.write_text("\n".join(lines))
    path.chmod(mode)
    return path


class Lines(Log):
    """Keeps what it is told."""

    def __init__(self, format: str) -> None:
        super().__init__(format)
        self.lines: list[str] = []

    def warning(self, message: str) -> None:
        self.lines.append(f"warning: {message}")

    def note(self, message: str) -> None:
        self.lines.append(message)


def bearer(key: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {key}".encode()}


def test_keys_are_plain_or_hashed_and_have_owners(tmp_path: Path) -> None:
    keys = ApiKeys(file(tmp_path, "# ours", "", f"{PLAIN} team search", HASH))
    assert keys.owner(bearer(PLAIN)) == "team search"
    assert keys.owner(bearer(OTHER)) == ""
    assert keys.owner({b"authorization": b"bearer  " + PLAIN.encode()}) == "team search"
    assert keys.owner({b"x-api-key": OTHER.encode()}) == ""


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer("wrong"),
        bearer(HASH),
        bearer(PLAIN[:-1]),
        bearer(PLAIN + "x"),
        {b"authorization": b"Basic " + PLAIN.encode()},
        {b"authorization": b"Bearer \xff\xfe"},
        {b"x-api-key": b""},
    ],
)
def test_other_requests_are_refused(tmp_path: Path, headers: dict[bytes, bytes]) -> None:
    keys = ApiKeys(file(tmp_path, PLAIN, HASH))
    with pytest.raises(Refusal) as refused:
        keys.owner(headers)
    assert refused.value.status == 401
    assert refused.value.headers == [(b"www-authenticate", b"Bearer")]
    assert PLAIN not in refused.value.message


def test_nothing_keeps_a_key_itself(tmp_path: Path) -> None:
    keys = ApiKeys(file(tmp_path, PLAIN))
    assert PLAIN not in repr(vars(keys)) + repr(keys._keys)


def test_every_key_is_compared_whatever_matches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ApiKeys(file(tmp_path, PLAIN, HASH, *(f"key-{number:020}" for number in range(5))))
    compared: list[bytes] = []
    same = hmac.compare_digest
    monkeypatch.setattr(api_keys.hmac, "compare_digest", lambda a, b: compared.append(a) or same(a, b))
    keys.owner(bearer(PLAIN))
    assert len(compared) == 7


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        ([], "no key"),
        (["# nothing"], "no key"),
        (["short"], "line 1"),
        ([PLAIN, "sha256:12"], "line 2"),
        ([HASH[:-1] + "g"], "line 1"),
        ([f"key-{number:020}" for number in range(1001)], "1001 keys"),
    ],
)
def test_a_broken_file_is_an_error_at_the_start(tmp_path: Path, lines: list[str], part: str) -> None:
    with pytest.raises(TrbError, match=part) as error:
        ApiKeys(file(tmp_path, *lines))
    assert error.value.code is Code.USAGE
    assert error.value.where == str(tmp_path / "keys")


def test_a_missing_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(TrbError) as error:
        ApiKeys(tmp_path / "none")
    assert error.value.code is Code.NOT_FOUND


def test_plain_keys_that_others_can_read_are_refused_and_hashes_are_not(tmp_path: Path) -> None:
    with pytest.raises(TrbError) as error:
        ApiKeys(file(tmp_path, PLAIN, mode=0o644))
    assert error.value.code is Code.USAGE
    ApiKeys(file(tmp_path, HASH, mode=0o644))
    with pytest.raises(TrbError) as error:
        ApiKeys(file(tmp_path, HASH, mode=0o666))
    assert error.value.code is Code.USAGE


def test_a_changed_file_is_read_again_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = file(tmp_path, PLAIN)
    keys, log = ApiKeys(path), Lines("text")
    keys.refresh(log)
    assert log.lines == []
    path.write_text(OTHER + "\n")
    os.utime(path, ns=(1, 1))
    keys.refresh(log)
    assert keys.owner(bearer(OTHER)) == ""
    with pytest.raises(Refusal):
        keys.owner(bearer(PLAIN))
    assert log.lines == [f"1 API key read from {path}"]
    for broken in (lambda: path.write_text("short"), path.unlink):
        broken()
        keys.refresh(log)
        keys.refresh(log)
        assert keys.owner(bearer(OTHER)) == ""
    assert len(log.lines) == 3
    assert all(line.startswith("warning: the API keys stay as they were") for line in log.lines[1:])
    assert OTHER not in "".join(log.lines)
    file(tmp_path, PLAIN)
    keys.refresh(log)
    assert keys.owner(bearer(PLAIN)) == ""


@pytest.mark.parametrize("left", ["", "\n", "# a-key-of-some-length\n"])
def test_the_last_key_is_revoked_as_any_other(tmp_path: Path, left: str) -> None:
    path = file(tmp_path, PLAIN)
    keys, log = ApiKeys(path), Lines("text")
    path.write_text(left)
    keys.refresh(log)
    for presented in (PLAIN, OTHER):
        with pytest.raises(Refusal) as refused:
            keys.owner(bearer(presented))
        assert refused.value.status == 401
    assert len(log.lines) == 1 and "no API key any more" in log.lines[0]
    path.write_text(f"{OTHER}\n{PLAIN}\n")
    keys.refresh(log)
    assert keys.owner(bearer(OTHER)) == "" and log.lines[1].startswith("2 API keys read")
