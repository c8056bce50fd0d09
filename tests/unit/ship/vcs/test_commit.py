from __future__ import annotations

from pathlib import Path

from triton_repo_builder.base.errors import Code
from triton_repo_builder.base.process import ProcessFailed
from triton_repo_builder.ship.vcs import commit


def test_what_git_could_not_write_is_named_where_git_does_not() -> None:
    """A root tree that a full disk kept from being written: git commits with --quiet, and names its hash."""
    said = "fatal: 25c3b72d9a8f6d6b8cf0b2d6a4d1f0a3c5e7f901 is not a valid object\n"
    failed = ProcessFailed(["git", "commit"], 128, "", said)
    error = commit._explained(failed, "", Path("model_repository"), sign_option=False)
    assert error.code is Code.GIT_REFUSED
    assert "could not write or read an object" in error.message
    assert "full" in error.remedy
