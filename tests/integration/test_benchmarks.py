"""What the scripts in benchmarks/ say of what they measured, and where they measure it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from triton_repo_builder.base import process

ROOT = Path(__file__).resolve().parents[2]
QUIET = ("-c", "user.name=a", "-c", "user.email=a@b")
OURS = """
import sys, pathlib, common
common.ours(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), "sentiment")
"""


def python(code: str, *arguments: object) -> str:
    """Run beside the scripts; in a process of its own, because they change signals and environment."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'benchmarks'}{os.pathsep}{ROOT}"}
    return process.run([sys.executable, "-c", code, *map(str, arguments)], env=environment, timeout=120)


def commit(folder: Path) -> str:
    return python(
        "import sys, pathlib, common; print(common.commit(pathlib.Path(sys.argv[1])))", folder
    ).strip()


@pytest.mark.slow
def test_a_page_names_the_commit_that_was_measured(tmp_path: Path) -> None:
    assert commit(tmp_path) == "unknown", "no repository"
    git = ["git", *QUIET, "-C", str(tmp_path)]
    process.run([*git, "init", "-q"])
    page = tmp_path / "docs" / "benchmarks" / "limit.md"
    page.parent.mkdir(parents=True)
    for file in (page, tmp_path / "code.py"):
        file.write_text("1")
    process.run([*git, "add", "."])
    process.run([*git, "commit", "-q", "--no-verify", "-m", "a"])
    head = process.run([*git, "rev-parse", "--short", "HEAD"]).strip()
    page.write_text("2")
    (tmp_path / "note").write_text("")
    assert commit(tmp_path) == head, "results and files that git does not know do not count"
    (tmp_path / "code.py").write_text("2")
    assert commit(tmp_path) == f"{head}+"


SHARED = {"common.py", "classifier.py", "wrapping.py"}
SCRIPTS = sorted({file.name for file in (ROOT / "benchmarks").glob("*.py")} - SHARED)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_explains_itself_and_does_nothing_else(script: str, tmp_path: Path) -> None:
    """Also where what it measures with is not installed: the encoder's torch is in another environment."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, str(ROOT / "benchmarks" / script), "--help"]
    text = process.run(argv, env=environment, cwd=tmp_path, timeout=60)
    assert text.startswith("usage: ")
    assert list(tmp_path.iterdir()) == []


def test_the_readme_says_which_pages_name_their_commit() -> None:
    pages = ROOT / "docs" / "benchmarks"
    naming = {page.name for page in pages.glob("*.md") if "Versions: commit " in page.read_text()}
    said = re.search(
        r"name the commit, too.*?\.(?=\sThe others)", (pages / "README.md").read_text(), re.DOTALL
    )
    assert said
    assert set(re.findall(r"\w+\.md", said[0])) == naming


def test_ours_are_built_for_the_cpu_and_nothing_sees_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'NVIDIA H200, 143771'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    process.run(
        [sys.executable, str(ROOT / "examples" / "sentiment" / "make_model.py"), str(tmp_path / "export")]
    )
    python(OURS, tmp_path / "export", tmp_path / "repository")
    config = (tmp_path / "repository" / "sentiment_model" / "config.pbtxt").read_text()
    assert "KIND_CPU" in config
    assert python("import common, os; print(repr(os.environ['CUDA_VISIBLE_DEVICES']))").strip() == "''"
