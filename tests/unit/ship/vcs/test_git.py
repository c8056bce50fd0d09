"""What git's own trace tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder.base.errors import Code
from triton_repo_builder.base.process import ProcessFailed
from triton_repo_builder.ship.vcs import git


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


@pytest.mark.parametrize(
    "said",
    [
        "fatal: sha1 file '/w/.git/index.lock' write error. Out of diskspace",
        "Error cleaning Git LFS object: write /w/.git/lfs/tmp/1: no space left on device\nfatal: no",
        "error: file write error: No space left on device\nfatal: unable to write",
        "error: file write error: Disk quota exceeded",
    ],
)
def test_a_full_disk_is_named_as_one_with_what_to_free(said: str) -> None:
    error = git.refused(ProcessFailed(("git", "commit"), 128, "", said), "repo", "correct that")
    assert error.code == Code.DISK_FULL
    assert said.splitlines()[0] in error.message
    assert error.remedy.startswith("free some space")
    assert (
        git.refused(ProcessFailed(("git", "x"), 1, "", "no"), "repo", "correct that").remedy == "correct that"
    )
