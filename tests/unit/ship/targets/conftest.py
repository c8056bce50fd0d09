"""Deployments of unit tests know no git."""

from __future__ import annotations

import pytest

from triton_repo_builder.ship.vcs import git


@pytest.fixture(autouse=True, scope="package")
def without_git() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(git, "last_commit", lambda folder: "")
        yield
