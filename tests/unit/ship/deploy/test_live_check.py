from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import serve_repository as made

from triton_repo_builder import repository
from triton_repo_builder.run.client import statistics
from triton_repo_builder.run.client.http import Answer, HttpClient
from triton_repo_builder.run.client.values import REFUSED, IndexEntry, RequestFailed
from triton_repo_builder.ship.deploy import live_check


@pytest.mark.parametrize(
    ("unready", "reason", "expected"),
    [
        ("/v2/health/ready", "", ["live-config", "live-not-ready"]),
        ("/v2/models/m/ready", "", ["live-config", "live-not-ready"]),  # its process died, from 26.01 on
        ("", "failed\nat line 2", ["live-missing"]),
    ],
)
def test_what_the_server_says(
    unready: str, reason: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.python(tmp_path, "m")
    entry = IndexEntry(name="m", version="1", state="UNAVAILABLE" if reason else "READY", reason=reason)

    def refuse(self: HttpClient, model: str) -> Any:
        raise RequestFailed(REFUSED, "403", "no")

    def send(self: HttpClient, method: str, path: str) -> Answer:
        return Answer(status=400 if path == unready else 200, headers={}, data=b"")

    monkeypatch.setattr(HttpClient, "send", send)
    monkeypatch.setattr(statistics, "read_or_empty", lambda http: {})
    monkeypatch.setattr(HttpClient, "version", lambda self: "2.51.0")
    monkeypatch.setattr(HttpClient, "index", lambda self: (entry,))
    monkeypatch.setattr(HttpClient, "config", refuse)
    found = live_check.check(repository.read(tmp_path), "http://127.0.0.1:1")
    assert sorted(finding.code for finding in found) == expected
    assert all("\n" not in finding.message for finding in found)


def test_what_answers_and_is_no_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.python(tmp_path, "m")
    page = Answer(status=200, headers={}, data=b"<html>hello</html>")
    monkeypatch.setattr(HttpClient, "send", lambda *a: page)
    found = live_check.check(repository.read(tmp_path), "http://127.0.0.1:1")
    assert [finding.code for finding in found] == ["live-unreachable"]
    assert "not JSON" in found[0].message
