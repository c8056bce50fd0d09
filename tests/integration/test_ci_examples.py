"""examples/ci: the shell steps of each job run as they are, on a scratch git repository and a real server.

What cannot run here is the platform: checkout, ``gh``, and the comment's HTTP call, which goes to a server
of the test's own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.support import serve_repository as made
from triton_repo_builder.cli import COMMANDS

pytestmark = [pytest.mark.server, pytest.mark.lfs]

CI = Path(__file__).resolve().parents[2] / "examples" / "ci"
INSTALL = "pip install 'triton_repo_builder[embedded]'"


@pytest.fixture
def checkout(tmp_path: Path, minilm_int8: Path) -> Path:
    """A clone whose branch changed the model repository that lies in main."""
    origin, work = tmp_path / "origin", tmp_path / "work"
    origin.mkdir()
    git(origin, "init", "--quiet", "--initial-branch=main")
    repository = origin / "model_repository"
    build = ["build", "--model", str(minilm_int8), "--name", "minilm", "--output"]
    assert made.trb(tmp_path, *build, str(repository)).returncode == 0
    git(origin, "add", "--all")
    git(origin, "commit", "--quiet", "-m", "main")
    git(tmp_path, "clone", "--quiet", str(origin), str(work))
    git(work, "switch", "--quiet", "-c", "change")
    done = made.trb(tmp_path, *build, str(work / "model_repository"), "--max-batch-size", "4", "--force")
    assert done.returncode == 0, done.stderr
    git(work, "add", "--all")
    git(work, "commit", "--quiet", "-m", "change")
    return work


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder for PATH: this trb, and a ``gh`` that writes down what it was asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "trb").write_text(f'#!/bin/sh\nexec {sys.executable} -m triton_repo_builder "$@"\n')
    (folder / "gh").write_text('#!/bin/sh\necho "$@" > asked; cat comment.md >> asked\n')
    for file in folder.iterdir():
        file.chmod(0o755)
    return folder


@pytest.fixture
def notes() -> Iterator[tuple[str, list[bytes]]]:
    """An API that takes comments."""
    taken: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            right = self.path == "/projects/7/merge_requests/3/notes"
            taken.append(body if right and self.headers["PRIVATE-TOKEN"] == "secret" else b"")
            self.send_response(201)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", taken
    server.shutdown()
    server.server_close()


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def run(step: str, folder: Path, path: Path, **variables: str) -> None:
    """One step, as both platforms run it: a shell that stops at the first failure."""
    env = {
        **made.environment(folder.parent),
        "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
        **variables,
    }
    (folder.parent / "tmp").mkdir(exist_ok=True)
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (step, done.stdout, done.stderr)


def verify(checkout: Path) -> None:
    """What a job leaves behind."""
    suite = ElementTree.parse(checkout / "smoke.xml").getroot()
    cases = list(suite.iter("testcase"))
    assert len(cases) > 50
    assert not list(suite.iter("failure"))
    comment = (checkout / "comment.md").read_text()
    assert comment.startswith("### What changes for clients\n")
    assert "batch" in comment


def test_both_install_the_same_and_use_commands_that_exist() -> None:
    github, gitlab = steps_of_github(), steps_of_gitlab()
    assert github[0] == gitlab[0] == INSTALL
    used = {word for step in (*github, *gitlab) for word in commands(step)}
    assert used == {"check", "smoke", "diff"} <= COMMANDS.keys()


def commands(step: str) -> list[str]:
    return [line.split()[1] for line in step.splitlines() if line.strip().startswith("trb ")]


def steps_of_github() -> list[str]:
    job: dict[str, Any] = yaml.safe_load((CI / "github-actions.yml").read_text())["jobs"]["verify"]
    return [step["run"] for step in job["steps"] if "run" in step]


def steps_of_gitlab() -> list[str]:
    job: dict[str, Any] = yaml.safe_load((CI / "gitlab-ci.yml").read_text())["verify"]
    return [*job["before_script"], *job["script"]]


def test_github_actions(checkout: Path, path: Path) -> None:
    summary = checkout / "summary.md"
    for step in steps_of_github()[1:]:
        filled = step.replace("${{ github.event.number }}", "12")
        assert "${{" not in filled
        run(filled, checkout, path, BASE="origin/main", GITHUB_STEP_SUMMARY=str(summary))
    verify(checkout)
    comment = (checkout / "comment.md").read_text()
    assert summary.read_text() == comment
    assert (checkout / "asked").read_text() == f"pr comment 12 --body-file comment.md\n{comment}"


@pytest.mark.slow
def test_gitlab(checkout: Path, path: Path, notes: tuple[str, list[bytes]]) -> None:
    assert shutil.which("curl")
    url, taken = notes
    for step in steps_of_gitlab()[1:]:
        run(
            step,
            checkout,
            path,
            CI_MERGE_REQUEST_TARGET_BRANCH_NAME="main",
            COMMENT_TOKEN="secret",
            CI_API_V4_URL=url,
            CI_PROJECT_ID="7",
            CI_MERGE_REQUEST_IID="3",
        )
    verify(checkout)
    assert len(taken) == 1
    assert b"What changes for clients" in taken[0]
