"""Names of files in .gitattributes and .gitignore: git itself says which files a line is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_repo_builder.base import process
from triton_repo_builder.ship.vcs import large_files

NAMES = (
    "plain.onnx",
    "a b/model.onnx",
    'we"ird.onnx',
    '"quoted".onnx',
    "br[1].onnx",
    "trailing .onnx",
    "trailing ",
    "trailing  ",
    "#x.onnx",
    "!y.onnx",
    "ü.onnx",
    "back\\slash.onnx",
    "back\\",
    "back\\ slash [1].onnx",
    "star*.onnx",
    "q?.onnx",
    "tab\tin.onnx",
    "line\nend.onnx",
    "return\r",
    "no\x01text.onnx",
    "d/e/**/f.onnx",
    "caf\udce9 latin.onnx",
)
OTHERS = ("br1.onnx", "starry.onnx", "qq.onnx", "trailing", "deep/plain.onnx", "x.onnx", "a", "b/model.onnx")
"""What a wildcard or a blank that is not escaped would also be about."""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    process.run(["git", "init", "-q", str(tmp_path)])
    folder = tmp_path / "model repository"
    for name in (*NAMES, *OTHERS):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if not (folder / name).is_dir():
            (folder / name).write_text("x")
    return folder


def asked(repo: Path, *argv: str) -> list[str]:
    names = "".join(f"{name}\0" for name in (*NAMES, *OTHERS))
    return process.run(["git", "-C", str(repo), *argv, "-z", "--stdin"], stdin=names).split("\0")[:-1]


def test_a_line_of_gitattributes_is_about_that_file_alone(repo: Path) -> None:
    large_files.write_block(
        repo / ".gitattributes", [f"{large_files.in_attributes(name)} filter=lfs" for name in NAMES]
    )
    said = asked(repo, "check-attr", "filter")
    assert [name for name, value in zip(said[::3], said[2::3], strict=True) if value == "lfs"] == [*NAMES]


def test_a_line_of_gitignore_is_about_that_file_alone(repo: Path) -> None:
    large_files.write_block(repo / ".gitignore", [large_files.in_ignore(name) for name in NAMES])
    assert asked(repo, "check-ignore") == [*NAMES]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "plain.onnx"])
def test_each_line_by_itself(repo: Path, name: str) -> None:
    large_files.write_block(repo / ".gitignore", [large_files.in_ignore(name)])
    assert asked(repo, "check-ignore") == [name]
    large_files.write_block(repo / ".gitattributes", [f"{large_files.in_attributes(name)} filter=lfs"])
    said = asked(repo, "check-attr", "filter")
    assert [found for found, value in zip(said[::3], said[2::3], strict=True) if value == "lfs"] == [name]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_the_user_has_in_such_a_file_stays_and_ours_is_there_once(tmp_path: Path, end: str) -> None:
    file = tmp_path / ".gitattributes"
    theirs = f"*.txt text{end}# caf".encode() + b"\xe9" + end.encode()
    file.write_bytes(theirs)
    large_files.write_block(file, ["* -text"])
    once = file.read_bytes()
    assert once.startswith(theirs)
    file.write_bytes(once.replace(b"\n", b"\r\n").replace(b"\r\r", b"\r") if end == "\r\n" else once)
    large_files.write_block(file, ["* -text"])
    assert file.read_bytes() == once
    large_files.write_block(file, [])
    assert file.read_bytes() == theirs
