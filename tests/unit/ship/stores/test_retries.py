"""What is tried again, and how often."""

from __future__ import annotations

import urllib.error
from email.message import Message

import pytest
import requests

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.stores import retries


def http(status: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://x", status, "x", Message(), None)


def wrapped(inner: Exception) -> Exception:
    try:
        raise TrbError(Code.DIGEST_MISMATCH, "breaks off") from inner
    except TrbError as error:
        return error


PASSING = [
    http(500),
    http(503),
    ConnectionResetError(),
    requests.ConnectionError(ConnectionResetError("gone")),
    urllib.error.URLError(ConnectionResetError()),
    wrapped(requests.exceptions.ChunkedEncodingError("IncompleteRead")),
]
FINAL = [
    http(403),
    http(404),
    http(429),
    ConnectionRefusedError(),
    urllib.error.URLError(ConnectionRefusedError()),
    FileNotFoundError(),
    PermissionError(),
    wrapped(ValueError("x")),
    TrbError(Code.DIGEST_MISMATCH, "x"),
]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(retries.time, "sleep", found.append)
    return found


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_passes_is_tried_again_after_growing_pauses(error: Exception, pauses: list[float]) -> None:
    left = [error, error]

    def action() -> str:
        if left:
            raise left.pop()
        return "done"

    assert retries.patiently(action) == "done"
    assert pauses == sorted(pauses) == list(retries.PAUSES[:2])
    assert retries.tried(error) == f" (tried {retries.TRIES} times)"
    assert retries.tried(error, 7) == " (tried at least 7 times)"


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_it_ends_with_the_failure(error: Exception, pauses: list[float]) -> None:
    calls = []

    def action() -> None:
        calls.append(1)
        raise error

    with pytest.raises(type(error)) as caught:
        retries.patiently(action)
    assert len(calls) == retries.TRIES == len(pauses) + 1
    if isinstance(caught.value, TrbError):
        assert f"tried {retries.TRIES} times" in caught.value.message


@pytest.mark.parametrize("error", FINAL, ids=repr)
def test_what_does_not_pass_fails_at_once(error: Exception, pauses: list[float]) -> None:
    def action() -> None:
        raise error

    with pytest.raises(type(error)):
        retries.patiently(action)
    assert pauses == []
    assert retries.tried(error, 7) == ""


def test_botocores_own_count_is_what_is_told() -> None:
    class ClientError(Exception):
        def __init__(self) -> None:
            self.response = {"ResponseMetadata": {"HTTPStatusCode": 503, "RetryAttempts": 2}}

    assert retries.tried(ClientError(), 5) == " (tried 3 times)"
