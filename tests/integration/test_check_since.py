"""``trb check --since``: which models of a work tree differ from a revision."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import serve_repository as made

from tests.support.cli import call
from triton_repo_builder import repository
from triton_repo_builder.errors import TrbError
from triton_repo_builder.vcs import changed


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A committed repository with an ensemble over one of two models."""
    root = tmp_path / "a b" / "models"
    root.mkdir(parents=True)
    made.python(root, "one")
    made.python(root, "two")
    made.ensemble(root, "both", "one")
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "user.email", "a@example.com")
    git(tmp_path, "config", "user.name", "a")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "models")
    return root


def test_changed_added_and_what_depends_on_it(tree: Path) -> None:
    def names() -> set[str]:
        return changed.models(repository.read(tree), "HEAD")

    assert names() == set()
    (tree / "two" / "1" / "notes").write_text("new")
    assert names() == {"two"}
    with (tree / "one" / "config.pbtxt").open("a") as config:
        config.write("max_batch_size: -1\n")
    assert names() == {"one", "two", "both"}


def test_only_these_are_checked(tree: Path) -> None:
    for name in ("one", "two"):
        with (tree / name / "config.pbtxt").open("a") as config:
            config.write("dynamic_batching { preferred_batch_size: [ -1 ] }\n")
    git(tree, "commit", "-qam", "wrong")
    assert call("check", tree).returncode == 1
    done = call("check", tree, "--since", "HEAD")
    assert (done.returncode, done.stdout) == (0, "0 models checked, no findings\n")
    (tree / "two" / "1" / "notes").write_text("new")
    done = call("check", tree, "--since", "HEAD")
    assert done.returncode == 1
    assert "1 model checked: " in done.stdout
    assert "one/config.pbtxt" not in done.stdout


def test_refusals(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(TrbError):
        changed.models(repository.read(tree), "nosuch")
    outside = tmp_path_factory.mktemp("outside")
    with pytest.raises(TrbError):
        changed.models(repository.read(outside), "HEAD")
