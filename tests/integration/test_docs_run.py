"""The blocks of the pages, run as they stand there but for ports, and compared with what the pages show.

Which blocks, in which folder: tests/data/docs_blocks.toml. What is the same: tests/support/docs_compare.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import kubernetes, s3_server
from tests.support.docs_accounts import Run, accounts
from tests.support.docs_blocks import Block, Kind
from tests.support.docs_compare import difference
from tests.support.docs_scenes import prepare
from tests.support.docs_shell import Shell, Step, opened, steps

RUNS = [
    pytest.param(run, id=run.name, marks=[getattr(pytest.mark, name) for name in ("server", *run.needs)])
    for run in accounts().runs
]
FAILS = ("error:", "Error:", "FAILED", "NOT CHECKED")


@pytest.fixture
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Run], Shell]]:
    """Opens the shell of a run, in its folder with its models and its bucket."""
    with ExitStack() as stack:

        def started(run: Run) -> Shell:
            folder = tmp_path / "page"
            folder.mkdir()
            prepare(folder, run.models, request.getfixturevalue)
            env = {"COLUMNS": "116", **run.env}
            if "kubernetes" in run.needs:
                env["PATH"] = f"{kubernetes.CACHE}:{os.environ['PATH']}"
            if run.s3:
                address = stack.enter_context(s3_server.running(tmp_path))
                env |= {**s3_server.CREDENTIALS, "AWS_ENDPOINT_URL": f"http://{address}"}
            return stack.enter_context(opened(folder, env))

        yield started


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("run", RUNS)
def test_the_page_shows_what_its_commands_do(run: Run, shell: Callable[[Run], Shell]) -> None:
    terminal = shell(run)
    for command in run.setup:
        said, code = terminal.run(command)
        assert code == 0, f"{command}\n{said}"
    said, command, wrong = "", "", []
    for block in run.found():
        file = next((file for text, file in run.files.items() if text in block.text), "")
        if file:
            with (terminal.folder / file).open("a") as sink:
                sink.write(block.text)
        elif block.kind in (Kind.OUTPUT, Kind.JSON):
            for text, command in run.before.items():
                said = terminal.run(command)[0] if text in block.text else said
            if apart := difference(block.text, said, measured=run.measures(command)):
                wrong.append(f"{block.where}\n{apart}")
        else:
            for step in _steps(block, terminal):
                if any(step.command.startswith(left_out) for left_out in accounts().left_out):
                    continue
                said, command = _took(run, terminal, step, block, wrong), step.command
    assert not wrong, "\n\n".join(wrong)


def _steps(block: Block, terminal: Shell) -> Iterator[Step]:
    """The commands of a block; code is a file that one command runs."""
    runners = {Kind.PYTHON: ("block.py", "python"), Kind.JAVASCRIPT: ("block.mjs", "node")}
    if block.kind in runners:
        name, program = runners[block.kind]
        file = terminal.folder / name
        with file.open("a") as script:  # later blocks of a page use the names of earlier ones
            script.write(terminal.here(block.text))
        return iter([Step(f"{program} {name}", "")])
    return steps(block.text, prompts=block.kind is Kind.TRANSCRIPT)


def _took(run: Run, terminal: Shell, step: Step, block: Block, wrong: list[str]) -> str:
    """Run a command; adds what is wrong about its exit code and output. Returns the output."""
    for text, before in run.before.items():
        if text in f"{step.command}\n{step.shown}":
            for line in before.splitlines():
                told, code = terminal.run(line)
                assert code == 0, f"{line}\n{told}"
    command = step.command
    for short, whole in run.replace.items():
        command = command.replace(short, whole)
    said, code = terminal.run(command)
    fails = any(line.strip().startswith(FAILS) or ": error: " in line for line in step.shown.splitlines())
    if (code != 0) != fails:
        wrong.append(f"{block.where}\n{step.command}\nexit code {code}\n{said}")
    elif step.shown and (apart := difference(step.shown, said, measured=run.measures(step.command))):
        wrong.append(f"{block.where}\n$ {step.command}\n{apart}")
    return said
