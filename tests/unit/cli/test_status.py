"""``trb status``: endpoints that answer, those whose steps do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import serve_repository as made

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.cli import status
from triton_repo_builder.run.client.http import HttpClient


@pytest.mark.parametrize("listed", [True, False])
def test_an_endpoint_whose_step_lost_its_process_does_not_answer(
    listed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Release 26.01 and later: only the step says so, whether or not the server lists its models."""
    for step in ("one", "two"):
        made.python(tmp_path, step)
        made.ensemble(tmp_path, f"with_{step}", step)
    names = ("one", "two", "with_one", "with_two")

    def states(self: HttpClient) -> dict[str, tuple[str, str]]:
        if not listed:
            raise TrbError(Code.ADMIN_KEY, "no")
        return dict.fromkeys(names, ("READY", ""))

    monkeypatch.setattr(HttpClient, "states", states)
    monkeypatch.setattr(HttpClient, "ready", lambda self, model: model != "two")
    server = SimpleNamespace(urls={"http": "http://127.0.0.1:1"}, repository=str(tmp_path), endpoints=[])
    assert status._loaded(cast(Any, server)) == (["with_one"], 2)


@pytest.mark.parametrize("width", [80, 120, 160])
def test_addresses_are_never_broken(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    row = {
        "name": "model_repository",
        "pid": "1234567",
        "engine": "embedded",
        "HTTP": "http://127.0.0.1:40001",
        "gRPC": "127.0.0.1:40002",
        "state": "ready (2 restarts)",
        "loaded": "2 of 2: minilm, minilm_int8",
        "repository": "/home/somebody/model_repository",
    }
    status._show([row, {**row, "HTTP": "http://127.0.0.1:50001"}])
    printed = capsys.readouterr().out
    assert all(value in printed for value in (*row.values(), "http://127.0.0.1:50001"))
    assert max(map(len, printed.splitlines())) <= width
