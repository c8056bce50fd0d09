"""The trees of ``examples/deploy/`` are what ``trb export TARGET`` writes for its ``deploy.toml``.

``make golden`` (this file as a program) writes them anew.
"""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from triton_repo_builder.ship import rendered
from triton_repo_builder.ship.targets import TARGETS, export

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "deploy"
# It is written by each run: a key that others can read is refused, and git keeps no such permissions.
KEY = "a-key-of-an-example-that-protects-nothing\n"
BUILT = tuple(
    target for target in TARGETS if find_spec(f"triton_repo_builder.ship.targets.{target}") is not None
)
"""Targets whose module there is."""


def project(folder: Path) -> Path:
    """A copy of the example with its repository and a key; ``deploy.toml`` there."""
    shutil.copytree(ROOT / "model_repository", folder / "model_repository")
    target = folder / "examples" / "deploy"
    target.mkdir(parents=True)
    for path in EXAMPLE.iterdir():
        if path.is_file():
            shutil.copy(path, target / path.name)
    key = target / "admin_key"
    key.touch(0o600)
    key.write_text(KEY)
    return target / "deploy.toml"


def tree(target: str, file: Path) -> dict[str, bytes]:
    """The files of a target, path → content."""
    return dict(export.render(target, export.read(file, file.parent / target)).contents)


def committed(target: str) -> dict[str, bytes]:
    folder = EXAMPLE / target
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(autouse=True)
def without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trees name no commit: it would be another one after each."""
    monkeypatch.setattr("triton_repo_builder.ship.vcs.git.last_commit", lambda folder: "")


@pytest.mark.parametrize("target", BUILT)
def test_the_committed_tree_is_what_export_writes(target: str, tmp_path: Path) -> None:
    assert committed(target) == tree(target, project(tmp_path)), "run 'make golden' and review the diff"


@pytest.mark.parametrize("target", BUILT)
def test_the_place_of_the_project_changes_nothing(target: str, tmp_path: Path) -> None:
    one, other = (tree(target, project(tmp_path / name)) for name in ("a", "b/longer"))
    assert one == other
    assert str(tmp_path).encode() not in b"".join(one.values())


@pytest.mark.parametrize("target", BUILT)
def test_no_key_is_in_a_tree(target: str, tmp_path: Path) -> None:
    assert KEY.strip().encode() not in b"".join(tree(target, project(tmp_path)).values())


def test_the_example_states_the_repository_that_is_committed(tmp_path: Path) -> None:
    deployment = export.read(project(tmp_path))
    assert deployment.spec.repository.revision == f"sha256:{deployment.revision}"


def test_each_folder_of_the_example_is_a_target() -> None:
    assert {path.name for path in EXAMPLE.iterdir() if path.is_dir()} <= TARGETS.keys()


def main() -> None:
    import tempfile

    from triton_repo_builder.ship.vcs import git

    git.last_commit = lambda folder: ""
    with tempfile.TemporaryDirectory() as scratch:
        file = project(Path(scratch))
        _restate(file)
        for target in BUILT:
            shutil.rmtree(EXAMPLE / target, ignore_errors=True)
            deployment = export.read(file, file.parent / target)
            rendered.write(export.render(target, deployment), EXAMPLE / target)


def _restate(file: Path) -> None:
    """Write the revision of the committed repository into the example."""
    import re

    from triton_repo_builder.ship.stores import revision

    digest = revision.collect(ROOT / "model_repository").index.digest
    text = re.sub(r'(?m)^revision = ".*"$', f'revision = "sha256:{digest}"', file.read_text())
    file.write_text(text)
    (EXAMPLE / "deploy.toml").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
