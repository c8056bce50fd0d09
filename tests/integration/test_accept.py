"""Accepted hand edits with git and a real server: from the edit to the promotion of the next version."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
import two_versions

from tests.support.cli import call, trb
from tests.support.servers import free
from triton_repo_builder.base import process
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.ship.vcs import earlier

MODEL = "sentiment_model/config.pbtxt"


def edit(repo: Path, old: str, new: str) -> None:
    text = (repo / MODEL).read_text()
    assert old in text
    (repo / MODEL).write_text(text.replace(old, new))


def git(folder: Path, *arguments: str) -> str:
    return process.run(["git", "-C", str(folder), *arguments]).strip()


@pytest.mark.server
def test_an_edit_is_accepted_served_kept_and_promoted(tmp_path: Path) -> None:
    one, two = two_versions.make(tmp_path)
    repo = tmp_path / "model_repository"
    trb("build", "--model", one, "--output", repo)
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "user.name", "Jo")
    git(tmp_path, "config", "user.email", "jo@example.org")
    trb("commit", repo, "-m", "As built", "--weights", "git")
    edit(repo, "count: 2", "count: 3")
    assert call("commit", repo, "-m", "Edited").returncode == 1
    said = trb("accept", repo, "--why", "three were faster")
    assert (
        "\n-instance_group { count: 2 kind: KIND_CPU }\n+instance_group { count: 3 kind: KIND_CPU }\n" in said
    )
    assert "accepted 1 edit by Jo <jo@example.org>" in said
    trb("commit", repo, "-m", "Edited", "--weights", "git")
    assert call("build", "--model", one, "--output", repo).stdout.startswith(f"{repo}: unchanged")
    trb("build", "--model", two, "--output", repo, "--version", "next")
    with serve.start(repo, free(), engine="embedded") as server:
        url = server.urls.http
        (link,) = json.loads(trb("provenance", repo, "--url", url, "--json"))
        assert link["server_agrees"] is True
        assert link["edits"][MODEL]["approvals"] == [
            {"by": "Jo <jo@example.org>", "why": "three were faster"}
        ]
        address = ("--url", url, "--grpc-url", server.urls.grpc)
        trb("promote", "sentiment", repo, "--version", "2", *address, "--no-preflight")
        trb("verify", repo, "--url", url)
        trb("smoke", repo, *address, "--clients", "2", "--requests", "2")
        groups = HttpClient(url).config("sentiment_model").instance_groups
        assert [group.count for group in groups] == [3]


def test_git_remembers_what_was_built(tmp_path: Path) -> None:
    root = tmp_path / "model_repository"
    (root / "a").mkdir(parents=True)
    file = root / "a" / "config.pbtxt"
    git(tmp_path, "init", "-q")
    for content in (b"one\n", b"two \xff\n", b"three\n"):
        file.write_bytes(content)
        git(tmp_path, "add", "-A")
        if content != b"three\n":
            git(tmp_path, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "x")
    file.write_bytes(b"four\n")
    for content in (b"one\n", b"two \xff\n", b"three\n"):
        assert earlier.content(root, "a/config.pbtxt", content.__eq__) == content
        assert earlier.content(root, "a/other.pbtxt", content.__eq__) is None
    assert earlier.content(root, "a/config.pbtxt", b"four\n".__eq__) is None


def test_without_git_nothing_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("LOGNAME", "jo")
    assert earlier.content(tmp_path, "a/config.pbtxt", b"".__eq__) is None
    assert earlier.user(tmp_path) == "jo"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert earlier.content(tmp_path, "a/config.pbtxt", b"".__eq__) is None
    assert earlier.user(tmp_path) == "jo"


KILLED = """
import os, signal, sys
from triton_repo_builder.base import files
write = files.write
def killed(file, content, **options):
    if file.name == "manifest.json":
        os.kill(os.getpid(), signal.SIGKILL)
    write(file, content, **options)
files.write = killed
from triton_repo_builder.cli import main
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_what_a_killed_accept_left_is_undone_by_the_next(tmp_path: Path) -> None:
    folder = tiny.classifier(tmp_path / "sentiment")
    repo = tmp_path / "model_repository"
    trb("build", "--model", folder, "--output", repo, "--no-golden")
    edit(repo, "count: 2", "count: 3")
    before = tiny.tree(repo)
    argv = [sys.executable, "-c", KILLED, "accept", str(repo), "--why", "three were faster"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    assert {path for path, digest in tiny.tree(repo).items() if before.get(path) != digest} == {
        "sentiment/config.pbtxt"
    }
    done = call("accept", repo, "--why", "three were faster")
    assert done.returncode == 0
    assert "a trb that was killed had left the repository half changed" in done.stderr
    assert call("check", repo).returncode == 0
