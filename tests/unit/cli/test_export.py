"""The command line of ``trb export``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import serve_repository
from tests.support.cli import call, kind
from triton_repo_builder.base.errors import Code
from triton_repo_builder.ship.vcs import git


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(git, "last_commit", lambda folder: "")
    return serve_repository.whole(tmp_path / "model_repository")


def test_check_fails_until_the_files_are_written(repo: Path, tmp_path: Path) -> None:
    arguments = ("export", "monitoring", str(repo), "-o", str(tmp_path / "out"))
    assert call(*arguments, "--check").returncode == 1
    assert not (tmp_path / "out").exists()
    assert call(*arguments).returncode == 0
    assert call(*arguments, "--check").returncode == 0
    changed = call(*arguments, "--check", "--objective", "p95=2s", "--json")
    assert changed.returncode == 1
    assert json.loads(changed.stdout)["changed"].keys() >= {"rules.yml"}


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["--target", "http://triton:8002"], "--target"),
        (["--target", "triton"], "--target"),
        (["--gateway", "triton:99999"], "--gateway"),
        (["--alertmanager", "http://alertmanager:9093"], "--alertmanager"),
        (["--objective", "p98=50ms"], "--objective"),
        (["--objective", "p99=50"], "--objective"),
        (["--objective", "max=50ms"], "--objective"),
        (["--window", "1s"], "--window"),
        (["--window", "7d"], "--window"),
        (["--drift-window", "5m"], "--drift-window"),
    ],
)
def test_invalid_options_are_usage_errors(repo: Path, arguments: list[str], where: str) -> None:
    done = call("export", "monitoring", str(repo), *arguments)
    assert done.returncode == 2
    assert kind(done.stderr) is Code.USAGE
    assert where in done.stderr


def test_an_alertmanager_needs_no_edit(repo: Path, tmp_path: Path) -> None:
    arguments = ("export", "monitoring", str(repo), "-o", str(tmp_path / "out"))
    named = (*arguments, "--alertmanager", "a:9093", "--alertmanager", "[::1]:9093")
    assert call(*named).returncode == 0
    text = (tmp_path / "out" / "prometheus.yml").read_text()
    assert text.index("alertmanagers:") < text.index("a:9093") < text.index("[::1]:9093")
    assert call(*named, "--check").returncode == 0


def test_check_says_what_was_edited(repo: Path, tmp_path: Path) -> None:
    arguments = ("export", "monitoring", str(repo), "-o", str(tmp_path / "out"))
    assert "without --check" in call(*arguments, "--check").stderr
    call(*arguments)
    for name, words in (("prometheus.yml", "it"), ("rules.yml", "them")):
        (tmp_path / "out" / name).write_text("mine")
        done = call(*arguments, "--check")
        assert done.returncode == 1
        assert done.stderr.endswith(f"{name}; --force replaces {words}\n")
        assert name in json.loads(call(*arguments, "--check", "--json").stdout)["edited"]
    assert call(*arguments).returncode == 5
    assert call(*arguments, "--force").returncode == 0
    assert call(*arguments, "--check").returncode == 0


def test_windows_are_hours_too(repo: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    done = call(
        *("export", "monitoring", str(repo), "-o", str(output)), "--window", "6h", "--drift-window", "1d"
    )
    assert done.returncode == 0
    assert "[6h]" in (output / "rules.yml").read_text()


def test_an_unknown_export_names_the_command(repo: Path) -> None:
    done = call("export", "grafana")
    assert done.returncode == 2
    assert kind(done.stderr) is Code.USAGE


def test_a_repository_that_is_missing_has_its_own_exit_code(tmp_path: Path) -> None:
    done = call("export", "monitoring", str(tmp_path / "missing"))
    assert done.returncode == 4
