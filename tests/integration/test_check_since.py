"""``trb check --since``: which models of a work tree differ from a revision."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import serve_repository as made

from tests.support.cli import call
from triton_repo_builder import repository
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.ship.vcs import changed


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
        return changed.entries(repository.read(tree), "HEAD")

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


def test_a_file_that_moved_is_a_change_of_both_models(tree: Path) -> None:
    (tree / "one" / "1" / "weights").write_text("long enough to be found again\n" * 9)
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "weights")
    git(tree, "mv", "one/1/weights", "two/1/weights")
    assert changed.entries(repository.read(tree), "HEAD") == {"one", "two", "both"}


def test_an_ensemble_whose_step_is_gone(tree: Path) -> None:
    shutil.rmtree(tree / "one")
    done = call("check", tree, "--since", "HEAD")
    assert done.returncode == 1
    assert "[ensemble-step-unknown]" in done.stdout


def test_links_count_as_what_they_lead_to(tree: Path) -> None:
    shared = tree.parent / "shared"
    shared.mkdir()
    (shared / "vocab.txt").write_text("a\n")
    (tree / "two" / "1" / "vocab.txt").symlink_to("../../../shared/vocab.txt")
    (tree / "one").rename(shared / "one")
    (tree / "one").symlink_to("../shared/one")
    git(tree, "add", "-A", "..")
    git(tree, "commit", "-qm", "links")
    assert changed.entries(repository.read(tree), "HEAD") == set()
    (shared / "vocab.txt").write_text("b\n")
    assert changed.entries(repository.read(tree), "HEAD") == {"two"}
    (shared / "one" / "1" / "notes").write_text("new")
    assert changed.entries(repository.read(tree), "HEAD") == {"one", "two", "both"}


def test_a_submodule_counts_as_its_model(tree: Path) -> None:
    other = tree.parent / "other"
    made.python(other, "three")
    for folder in (other, other / "three"):
        git(folder, "init", "-q")
    git(other / "three", "add", "-A")
    git(other / "three", "-c", "user.email=a@b", "-c", "user.name=a", "commit", "-qm", "three")
    git(tree, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other / "three"), "three")
    assert changed.entries(repository.read(tree), "HEAD") >= {"three"}
    git(tree, "commit", "-qm", "submodule")
    assert changed.entries(repository.read(tree), "HEAD") == set()
    (tree / "three" / "config.pbtxt").write_text("")
    assert changed.entries(repository.read(tree), "HEAD") == {"three"}


def test_what_is_wrong_beside_the_models_counts_if_it_is_new(tree: Path) -> None:
    (tree / "old").symlink_to("nowhere")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "a link")
    assert call("check", tree, "--since", "HEAD").returncode == 0
    (tree / "new").symlink_to("nowhere")
    done = call("check", tree, "--since", "HEAD")
    assert done.returncode == 1
    assert "models/new: error" in done.stdout
    assert "models/old" not in done.stdout


def test_altered_files_of_a_changed_model(tree: Path) -> None:
    files = {name: {"sha256": "0", "bytes": 1} for name in ("one/config.pbtxt", "two/config.pbtxt")}
    manifest = tree / "manifest.json"
    manifest.write_text(json.dumps({"endpoints": {}, "files": files}))
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "a manifest")
    (tree / "two" / "config.pbtxt").open("a").write("# by hand\n")
    done = call("check", tree, "--since", "HEAD", "--select", "manifest-changed")
    assert "two/config.pbtxt" in done.stdout
    assert "one/config.pbtxt" not in done.stdout
    manifest.write_text(json.dumps({"endpoints": {}, "files": files}, indent=1))
    assert "one/config.pbtxt" in call("check", tree, "--since", "HEAD").stdout


def test_before_the_first_commit_all_is_new(tmp_path: Path) -> None:
    made.python(tmp_path, "one")
    git(tmp_path, "init", "-q")
    assert changed.entries(repository.read(tmp_path), "HEAD") == {"one"}


@pytest.mark.parametrize("revision", ["--output=stolen", "-p", "", "HEAD..", "HEAD:nosuch", "^HEAD"])
def test_a_revision_is_no_option(tree: Path, revision: str) -> None:
    with pytest.raises(TrbError, match="knows no revision"):
        changed.entries(repository.read(tree), revision)
    assert not list(tree.rglob("stolen"))


def test_refusals(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(TrbError):
        changed.entries(repository.read(tree), "nosuch")
    outside = tmp_path_factory.mktemp("outside")
    with pytest.raises(TrbError):
        changed.entries(repository.read(outside), "HEAD")
