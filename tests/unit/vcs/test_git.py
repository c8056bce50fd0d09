"""What git's own trace tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder.vcs import git


def started(number: int, hook: str = "", sid: str = "1") -> dict[str, Any]:
    kind = {"child_class": "hook", "hook_name": hook} if hook else {"child_class": "?"}
    return {"event": "child_start", "sid": sid, "child_id": number, **kind}


def ended(number: int, code: int, sid: str = "1") -> dict[str, Any]:
    return {"event": "child_exit", "sid": sid, "child_id": number, "code": code}


@pytest.mark.parametrize(
    ("events", "hook"),
    [
        ([], ""),
        ([started(0, "pre-commit"), ended(0, 0)], ""),
        ([started(0, "pre-commit"), ended(0, 3)], "pre-commit"),
        ([started(0, "pre-commit"), ended(0, -1)], "pre-commit"),
        ([started(0, "pre-commit"), ended(0, 0), started(1, "commit-msg"), ended(1, 1)], "commit-msg"),
        ([started(0), ended(0, 1), {"event": "exit", "sid": "1", "code": 1}], ""),
        # A hook may start git, which has hooks and children of its own.
        ([started(0, "post-commit"), started(0, "x", "1/2"), ended(0, 1, "1/2"), ended(0, 0)], ""),
        ([started(1, "post-commit"), ended(1, 1, "1/2"), ended(1, 0)], ""),
    ],
)
def test_the_hook_that_failed(tmp_path: Path, events: list[dict[str, Any]], hook: str) -> None:
    trace = tmp_path / "trace"
    trace.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    assert git.failed_hook(trace) == hook


def test_git_that_did_not_start_has_no_trace(tmp_path: Path) -> None:
    assert git.failed_hook(tmp_path / "trace") == ""
