"""The environment with torch: how it is made, found, refused, and that a failure leaves nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triton_repo_builder.base import process
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.convert import environment

ROOT = Path(__file__).resolve().parents[4]


def silent(text: str) -> None:
    """Progress that nobody sees."""


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Sequence[str]]:
    """Commands that were started; they do nothing, and succeed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(environment.VARIABLE, raising=False)
    monkeypatch.setattr(environment.shutil, "which", lambda name: None)
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 40))
    commands: list[Sequence[str]] = []

    def run(argv: Sequence[str], progress: Any) -> None:
        commands.append(argv)
        if "venv" in argv:
            (Path(argv[-1]) / "bin").mkdir(parents=True, exist_ok=True)
            (Path(argv[-1]) / "bin" / "python").write_text("")

    monkeypatch.setattr(environment, "_run", run)
    return commands


def test_it_is_made_once(ran: list[Sequence[str]], tmp_path: Path) -> None:
    told: list[str] = []
    first = environment.python(None, silent, told.append)
    assert first.exists() and first.is_relative_to(tmp_path / "trb" / "convert")
    assert len(ran) == 2 and any("once" in line for line in told)
    assert environment.python(None, silent, silent) == first
    assert len(ran) == 2


def test_a_failure_leaves_nothing(
    ran: list[Sequence[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (TrbError(Code.DOWNLOAD_FAILED, "no index", remedy="x"), KeyboardInterrupt()):

        def fail(argv: Sequence[str], progress: Any, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(environment, "_run", fail)
        with pytest.raises(type(error)):
            environment.python(None, silent, silent)
        assert list((tmp_path / "trb" / "convert").iterdir()) == []


def test_too_little_room_is_said_first(ran: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 30))
    with pytest.raises(TrbError) as caught:
        environment.python(None, silent, silent)
    assert caught.value.code is Code.DISK_FULL and ran == []


def test_uv_is_taken_if_there_is_one(tmp_path: Path) -> None:
    by_uv, by_pip = environment.commands(tmp_path, "/bin/uv"), environment.commands(tmp_path, None)
    assert all(argv[0] == "/bin/uv" for argv in by_uv) and "--torch-backend" in by_uv[1]
    assert by_pip[0][0] == sys.executable and by_pip[1][0] == str(tmp_path / "bin" / "python")
    assert all(str(environment.REQUIREMENTS) in argv for argv in (by_uv[1], by_pip[1]))


def test_every_requirement_is_pinned() -> None:
    lines = environment.REQUIREMENTS.read_text().splitlines()
    assert all("==" in line for line in lines if not line.startswith("#"))
    export = Path(__file__).resolve().parents[4] / "constraints-export.txt"
    pins = {line.partition("==")[0]: line for line in export.read_text().splitlines() if "==" in line}
    ours = {line.partition("==")[0]: line for line in lines if "==" in line}
    assert {name: line for name, line in ours.items() if name in pins}.items() <= pins.items()


@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        (
            ["Collecting torch", "ERROR: No matching distribution found for torch==2.13.0", ""],
            Code.DOWNLOAD_FAILED,
            "No matching distribution",
        ),
        (["OSError: [Errno 28] No space left on device"], Code.DISK_FULL, "the disk is full"),
        ([], Code.DOWNLOAD_FAILED, "no reason"),
    ],
)
def test_failures_of_pip(lines: list[str], code: Code, words: str) -> None:
    error = environment._failed(lines)
    assert error.code is code and words in error.message and error.remedy


def test_a_stated_python_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def without(argv: Any, **settings: Any) -> str:
        raise process.ProcessFailed(argv, 1, "", "…\nPackageNotFoundError: torch")

    monkeypatch.setattr(process, "run", without)
    monkeypatch.setenv(environment.VARIABLE, str(tmp_path / "python"))
    with pytest.raises(TrbError) as caught:
        environment.python(None, silent, silent)
    assert caught.value.code is Code.NOT_FOUND and "torch" in caught.value.message
    monkeypatch.setattr(process, "run", lambda argv, **settings: "")
    assert environment.python(None, silent, silent) == tmp_path / "python"


def test_the_environment_has_what_optimum_needs_at_the_versions_that_the_tests_convert_with() -> None:
    """optimum-onnx does not require onnxruntime, and cannot export without it."""
    ours, tested = (
        dict(line.split("==") for line in file.read_text().splitlines() if "==" in line)
        for file in (environment.REQUIREMENTS, ROOT / "constraints-export.txt")
    )
    assert {"optimum-onnx", "onnx", "onnxruntime", "onnxscript"} <= ours.keys()
    assert {name: tested.get(name, version) for name, version in ours.items()} == ours
