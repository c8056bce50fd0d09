"""A pipe or a device in the place of a file of a repository is refused at once, by every command."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import tiny
from cli import ARGV, call, own

from triton_repo_builder.errors import Exit

NOWHERE = "http://127.0.0.1:9"
REPOSITORY = "model_repository"
FILES = (
    "model_repository/manifest.json",
    "model_repository/sentiment/config.pbtxt",
    "model_repository/sentiment/smoke.json",
    "model_repository/sentiment_model/1/weights.onnx",
    "model_repository/sentiment_tokenizer/1/model.py",
    "trb.toml",
    ".gitattributes",
    "model/config.json",
)
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("check", REPOSITORY),
    ("diff", REPOSITORY, "other"),
    ("verify", REPOSITORY, "--url", NOWHERE),
    ("client", "sentiment", REPOSITORY),
    ("provenance", REPOSITORY),
    ("inspect", "model"),
    ("commit", "-m", "all"),
    ("fetch",),
    ("push", "oci://127.0.0.1:9/x:1"),
    ("promote", "sentiment", "--version", "1"),
    ("apply", REPOSITORY, "--url", NOWHERE),
    ("smoke", REPOSITORY, "--url", NOWHERE),
    ("remove", "sentiment", "--dry-run"),
    ("bench", REPOSITORY, "--url", NOWHERE),
    ("build", "--model", "model", "--name", "sentiment", "--force"),
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported model, and the repository built from it, in a git work tree."""
    folder = tmp_path_factory.mktemp("project")
    tiny.classifier(folder / "model")
    assert call("build", "--model", "model", "--name", "sentiment", cwd=folder).returncode == 0
    shutil.copytree(folder / REPOSITORY, folder / "other")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("kind", ["pipe", "endless"])
@pytest.mark.parametrize("name", FILES)
def test_no_command_waits_for_it_or_reads_on(project: Path, tmp_path: Path, name: str, kind: str) -> None:
    folder = tmp_path / "project"
    shutil.copytree(project, folder)
    file = folder / name
    file.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    script = "import sys; from cli import call\n" + "".join(
        f"done = call(*{argv!r}); print(done.args[1], done.returncode, repr(done.stderr))\n"
        for argv in COMMANDS
    )
    done = subprocess.run(
        [*ARGV[:1], "-c", script],
        cwd=folder,
        env={**os.environ, **own(tmp_path), "PYTHONPATH": str(Path(tiny.__file__).parent)},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    codes = {line.split()[0]: (int(line.split()[1]), line) for line in done.stdout.splitlines()}
    assert len(codes) == len(COMMANDS)
    bugs = [line for code, line in codes.values() if code == Exit.BUG]
    assert not bugs, "\n".join(bugs)
