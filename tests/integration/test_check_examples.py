"""examples/check: the hook's and the action's own command lines, on a git repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import serve_repository as made
import yaml

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "check"


def run(folder: Path, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{folder.parent / 'bin'}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, **variables}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A commit with a healthy model, and a change that breaks another one."""
    folder = tmp_path / "work"
    (folder / "model_repository").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    trb = tmp_path / "bin" / "trb"
    trb.write_text(f'#!/bin/sh\nexec {sys.executable} -m triton_repo_builder "$@"\n')
    trb.chmod(0o755)
    made.python(folder / "model_repository", "one")
    made.python(folder / "model_repository", "two")
    commands = (
        "git init -q && git config user.email a@b && git config user.name a && git add -A && git commit -qm a"
    )
    assert run(folder, commands).returncode == 0
    return folder


def break_two(work: Path) -> None:
    with (work / "model_repository" / "two" / "config.pbtxt").open("a") as config:
        config.write("dynamic_batching { preferred_batch_size: [ 1000 ] }\n")


def test_the_hook_stops_a_commit_that_breaks_a_model(work: Path) -> None:
    hook = yaml.safe_load((EXAMPLES / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"][0]
    assert run(work, hook["entry"]).returncode == 0
    break_two(work)
    done = run(work, hook["entry"])
    assert done.returncode == 1
    assert "[preferred-size]" in done.stdout


def test_the_action_annotates_the_line(work: Path) -> None:
    action = yaml.safe_load((EXAMPLES / "action.yml").read_text())
    defaults = {name: entry["default"] for name, entry in action["inputs"].items()}
    step = action["runs"]["steps"][-1]
    variables = {
        name: defaults[value.removeprefix("${{ inputs.").removesuffix(" }}")]
        for name, value in step["env"].items()
    }
    assert run(work, step["run"], **variables).returncode == 0
    break_two(work)
    done = run(work, step["run"], **{**variables, "SINCE": "HEAD", "ARGUMENTS": "--strict"})
    assert done.returncode == 1
    line = next(line for line in done.stdout.splitlines() if "preferred-size" in line)
    assert line.startswith("::error file=model_repository/two/config.pbtxt,line=")


def test_the_policies_judge_the_models(work: Path) -> None:
    (work / "trb.toml").write_text((EXAMPLES / "trb.toml").read_text())
    assert run(work, "trb check").returncode == 0
    with (work / "model_repository" / "two" / "config.pbtxt").open("a") as config:
        config.write(
            "instance_group [ { count: 1 } ]\ndynamic_batching { max_queue_delay_microseconds: 6000 }\n"
        )
    done = run(work, "trb check")
    assert done.returncode == 1
    assert "a request waits too long" in done.stdout
    assert "[policy-no-auto]" in done.stdout
