"""The trees of ``examples/deploy/`` are what ``trb export TARGET`` writes for its ``deploy.toml``.

``make golden`` (this file as a program) writes them anew.
"""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from triton_repo_builder.ship.stores import revision
from triton_repo_builder.ship.targets import TARGETS, export, spec, starter

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "deploy"
# It is written by each run: a key that others can read is refused, and git keeps no such permissions.
KEY = "a-key-of-an-example-that-protects-nothing\n"
BUILT = tuple(
    target for target in TARGETS if find_spec(f"triton_repo_builder.ship.targets.{target}") is not None
)
"""Targets whose module there is."""
FILES = tuple(sorted(path.name for path in EXAMPLE.glob("*.toml")))
"""``deploy.toml``, and files of targets that cannot do all that it says."""


def committed_repository(target: Path) -> Path:
    """A copy of the golden repository without what git ignores: wheels that a build put there."""
    shutil.copytree(ROOT / "model_repository", target, ignore=shutil.ignore_patterns("vendor", "__pycache__"))
    return target


def project(folder: Path, target: str = "") -> Path:
    """A copy of the example, its repository and a key. Returns ``TARGET.toml`` there, or ``deploy.toml``."""
    committed_repository(folder / "model_repository")
    example = folder / "examples" / "deploy"
    example.mkdir(parents=True)
    for path in EXAMPLE.iterdir():
        if path.is_file():
            shutil.copy(path, example / path.name)
    key = example / "admin_key"
    key.touch(0o600)
    key.write_text(KEY)
    own = example / f"{target}.toml"
    return own if own.is_file() else example / "deploy.toml"


def tree(target: str, folder: Path) -> dict[str, bytes]:
    """The files of a target, path → content; without archives, which are no text."""
    file = project(folder, target)
    deployment = replace(export.read(file), output=file.parent / target)
    contents = export.render(target, deployment).contents
    return {path: content for path, content in contents.items() if isinstance(content, bytes)}


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
    """Wherever the project lies, and without its key."""
    written = tree(target, tmp_path / "a" / "longer")
    assert committed(target) == written, "run 'make golden' and review the diff"
    whole = b"".join(written.values())
    assert str(tmp_path).encode() not in whole
    assert KEY.strip().encode() not in whole


def as_written(file: Path) -> str:
    """The file as ``trb deploy init`` would write its values, with the comments of today."""
    return starter.text(spec.parse(file.read_text(), Path(file.name)))


@pytest.mark.parametrize("file", FILES)
def test_the_example_has_every_key_as_init_writes_it(file: str) -> None:
    assert (EXAMPLE / file).read_text() == as_written(EXAMPLE / file), "run 'make golden'"


@pytest.mark.parametrize("file", FILES)
def test_the_example_states_the_repository_that_is_committed(file: str, tmp_path: Path) -> None:
    deployment = export.read(project(tmp_path, file.removesuffix(".toml")))
    assert deployment.file.name == file
    assert deployment.spec.repository.revision == f"sha256:{deployment.revision}"


def test_each_folder_of_the_example_is_a_target() -> None:
    assert {path.name for path in EXAMPLE.iterdir() if path.is_dir()} <= TARGETS.keys()


def main() -> None:
    import tempfile

    from triton_repo_builder.ship.vcs import git

    git.last_commit = lambda folder: ""
    with tempfile.TemporaryDirectory() as scratch:
        repository = committed_repository(Path(scratch) / "model_repository")
        _restate(revision.collect(repository).index.digest)
    for target in BUILT:
        shutil.rmtree(EXAMPLE / target, ignore_errors=True)
        with tempfile.TemporaryDirectory() as scratch:
            for path, content in tree(target, Path(scratch)).items():
                file = EXAMPLE / target / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)


def _restate(digest: str) -> None:
    """Write the revision of the committed repository into the files of the example."""
    for name in FILES:
        file = EXAMPLE / name
        text = re.sub(r'(?m)^revision = ".*"$', f'revision = "sha256:{digest}"', file.read_text())
        file.write_text(re.sub(r"(?m)^(source = .*@sha256:)[0-9a-f]{64}", rf"\g<1>{digest}", text))
        file.write_text(as_written(file))


if __name__ == "__main__":
    sys.exit(main())
