"""A pipe or a device in the place of a file of a repository is refused at once, by every command."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import tiny
from cli import ARGV, call, own

from triton_repo_builder.base.errors import Code, Exit

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


@pytest.mark.parametrize("kind", ["pipe", pytest.param("endless", marks=pytest.mark.slow)])
def test_no_command_waits_for_it_or_reads_on(project: Path, tmp_path: Path, kind: str) -> None:
    """In a process of its own, which can be ended: one that waits would wait for ever."""
    for number, name in enumerate(FILES):
        folder = tmp_path / str(number)
        shutil.copytree(project, folder)
        file = folder / name
        file.unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(file)
        else:
            file.symlink_to("/dev/zero")
    script = "import os\nfrom cli import call\n" + "".join(
        f"os.chdir({str(tmp_path / str(number))!r})\n"
        f"print({name!r}, {argv[0]!r}, call(*{argv!r}).returncode)\n"
        for number, name in enumerate(FILES)
        for argv in COMMANDS
    )
    done = subprocess.run(
        [*ARGV[:1], "-c", script],
        env={**os.environ, **own(tmp_path), "PYTHONPATH": str(Path(tiny.__file__).parent)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == len(COMMANDS) * len(FILES), done.stderr
    codes = {(name, command): int(code) for name, command, code in lines}
    assert Exit.BUG not in codes.values(), codes
    for name in FILES:
        if name.startswith(REPOSITORY):
            assert codes[name, "check"] == Exit.CHECKS
            assert {codes[name, command] for command in ("diff", "verify", "client")} == {Exit.NOT_FOUND}
    assert codes["trb.toml", "build"] == Exit.USAGE
    assert codes["trb.toml", "check"] in (
        Exit.USAGE,
        Code.OUTSIDE_FOLDER.exit,
    )  # a link to a device leads out
    assert codes[".gitattributes", "commit"] == Exit.GIT
    assert codes["model/config.json", "build"] == Exit.NOT_FOUND
