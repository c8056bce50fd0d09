"""SIGTERM and SIGHUP are Ctrl-C: a command goes to a whole state, leaves nothing behind, and exits 130.

Kubernetes and systemd send SIGTERM, a terminal that closes sends SIGHUP. Each ``trb`` here is a
process; after it no file in TMPDIR and no process of its own may be left (``Command.ends``).
"""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import termios
from pathlib import Path

import pytest
import tiny

from tests.integration import test_apply
from tests.integration.test_apply import revisions, root
from tests.integration.test_promote import made, only, repo, serve, served
from tests.integration.test_promote_interrupted import address, contents
from tests.support import cli, s3_server, serve_repository, sleeper
from tests.support.interrupted import command
from triton_repo_builder.base.errors import Code
from triton_repo_builder.repository.journal import staging
from triton_repo_builder.run.client import HttpClient

__all__ = ["made", "repo", "revisions", "root"]
INTERRUPTED = Code.INTERRUPTED.exit
TERM, HUP = signal.SIGTERM, signal.SIGHUP


def whole(repository: Path) -> None:
    """The next command has nothing to say about an earlier one."""
    assert staging.leftovers(repository) == []
    checked = cli.call("check", repository)
    assert (checked.returncode, "killed" in checked.stderr) == (0, False), checked.stderr


@pytest.mark.server
@pytest.mark.parametrize(
    "moment",
    [
        "sentiment_model: versions 1 and 2",
        pytest.param("steps pinned to version 1", marks=pytest.mark.slow),
        pytest.param("sentiment: version 2", marks=pytest.mark.slow),
        pytest.param("smoke: version 2", marks=pytest.mark.slow),
    ],
)
def test_a_promotion_goes_back(repo: Path, tmp_path: Path, moment: str) -> None:
    """Also if SIGTERM comes again on the way back: that would leave the server between the versions."""
    before = contents(repo)
    with serve(repo) as server:
        with command(
            tmp_path, "promote", "sentiment", repo, "--version", "2", "--no-preflight", *address(server)
        ) as trb:
            trb.says(moment)
            assert trb.ends(TERM, TERM, HUP) == INTERRUPTED
            assert trb.output.endswith("interrupted\n")
        assert contents(repo) == before
        assert served(server) == only("1")
        assert HttpClient(server.urls.http).ready()
        whole(repo)


@pytest.mark.server
@pytest.mark.slow
def test_a_preflight_goes_with_its_server(repo: Path, tmp_path: Path) -> None:
    before = contents(repo)
    with serve(repo) as server:
        with command(tmp_path, "promote", "sentiment", repo, "--version", "2", *address(server)) as trb:
            trb.reaches(lambda: list(trb.tmp.glob("trb-*/server.log")))
            assert trb.ends(TERM) == INTERRUPTED
        assert contents(repo) == before
        assert served(server) == only("1")
        whole(repo)


@pytest.mark.server
def test_an_apply_goes_back(revisions: Path, root: Path, tmp_path: Path) -> None:
    """Between the two states of the second endpoint: the first goes back as well."""
    two, state = revisions / "two", contents(root)
    with test_apply.serve(root) as server:
        arguments = ("apply", two, *address(server))
        with command(tmp_path, *arguments, "--no-preflight") as trb:
            trb.says("runs the new versions")
            assert trb.ends(TERM, HUP) == INTERRUPTED
            assert "sentiment: going back to what was served" in trb.output
        assert contents(root) == state
        assert {number for numbers in served(server).values() for number in numbers} == {"1"}
        assert HttpClient(server.urls.http).ready()
        whole(root)
        smoke = cli.call("smoke", root, *address(server), *cli.FEW)
        assert smoke.returncode == 0, smoke.stdout
        with command(tmp_path, *arguments) as trb:
            trb.says("preflight on a server of its own")
            trb.reaches(lambda: list(trb.tmp.glob("trb-*/server.log")))
            assert trb.ends(TERM) == INTERRUPTED
        assert contents(root) == state
        assert test_apply.apply(two, server, "--no-preflight")[0] == 0
        assert contents(root) == contents(two)


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.slow
def test_an_apply_whose_server_ends_as_well_is_interrupted(
    revisions: Path, root: Path, tmp_path: Path
) -> None:
    """As when a pod ends: no other endpoint is tried."""
    before = contents(root)
    with test_apply.serve(root) as server:
        with command(tmp_path, "apply", revisions / "two", *address(server), "--no-preflight") as trb:
            trb.says("sentiment: steps")
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            assert trb.ends(TERM) in (INTERRUPTED, Code.APPLY_FAILED.exit)
        assert contents(root).keys() >= before.keys()
        whole(root)


@pytest.mark.parametrize("number", [TERM, pytest.param(HUP, marks=pytest.mark.slow)])
def test_optimize_leaves_nothing(exported: Path, tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "models" / "int8"
    steps = ("--steps", "int8:per-row", "--max-drop", "0.2")
    with command(tmp_path, "optimize", exported / "minilm_fp32", "-o", out, *steps) as trb:
        trb.reaches(lambda: list(out.parent.glob(".int8-*/*")))
        assert trb.ends(number) == INTERRUPTED
    assert list(out.parent.iterdir()) == []


def test_a_build_leaves_nothing(exported: Path, tmp_path: Path) -> None:
    output = tmp_path / "repositories" / "served"
    output.parent.mkdir()
    model = exported / "minilm_fp32"
    with command(tmp_path, "build", "--model", model, "--output", output, "--precision", "int8") as trb:
        trb.reaches(lambda: list(trb.tmp.glob("trb-precision-*")))
        assert trb.ends(TERM) == INTERRUPTED
    assert list(output.parent.iterdir()) == []


@pytest.mark.server
@pytest.mark.parametrize(
    "arguments",
    [
        ("tune", "--slo", "p99=200ms"),
        *(pytest.param((each,), marks=pytest.mark.slow) for each in ("bench", "smoke")),
    ],
)
def test_what_starts_a_server_stops_it(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    repository = sleeper.write(tmp_path)
    before = contents(repository)
    with command(tmp_path, *arguments, repository) as trb:
        sign = "trb-*/server.log" if arguments == ("smoke",) else "trb-bench-*/0.log"
        trb.reaches(lambda: list(trb.tmp.glob(sign)))
        assert trb.ends(TERM, TERM) == INTERRUPTED
    assert contents(repository) == before
    assert staging.leftovers(repository) == []


def test_nohup_is_heeded(tmp_path: Path) -> None:
    model = tiny.tensor_model(tmp_path / "net.onnx")

    def nohup() -> None:
        signal.signal(HUP, signal.SIG_IGN)

    with command(tmp_path, "build", "--model", model, "--output", tmp_path / "r", preexec_fn=nohup) as trb:
        assert trb.ends(HUP, HUP, HUP) == 0
    assert (tmp_path / "r" / "manifest.json").is_file()


def test_what_git_started_ends_with_it(tmp_path: Path) -> None:
    """A hook of the user's, and git's lock on the index."""
    project = tmp_path / "project"
    tiny.put(tiny.tensor_model(tmp_path / "net.onnx"), project / "models")
    subprocess.run(["git", "init", "-q", project], check=True)
    for name, value in (("user.name", "T"), ("user.email", "t@example.com")):
        subprocess.run(["git", "-C", project, "config", name, value], check=True)
    hook = project / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/begun\nsleep 600\n")
    hook.chmod(0o755)
    git_files = {path.name for path in (project / ".git").iterdir()}
    with command(tmp_path, "commit", project / "models", "-m", "Deploy", "--weights", "git") as trb:
        trb.reaches((tmp_path / "begun").exists)
        assert trb.ends(TERM) == INTERRUPTED
    assert {path.name for path in (project / ".git").iterdir()} <= git_files | {"index", "COMMIT_EDITMSG"}
    assert subprocess.run(["git", "-C", project, "log"], capture_output=True, check=False).returncode != 0


@pytest.mark.slow
@pytest.mark.server
def test_a_terminal_that_closes_does_not_end_the_way_back(repo: Path) -> None:
    """The message about it cannot be written any more."""
    before = contents(repo)
    inner, outer = pty.openpty()
    with serve(repo) as server:
        child = subprocess.Popen(
            [*cli.ARGV, "promote", "sentiment", repo, "--version", "2", "--no-preflight", *address(server)],
            stdin=outer,
            stdout=outer,
            stderr=outer,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(outer)
        seen = b""
        while b"sentiment_model: versions 1 and 2" not in seen:
            seen += os.read(inner, 1 << 16)
        os.close(inner)
        assert child.wait(120) == INTERRUPTED
        assert contents(repo) == before
        assert served(server) == only("1")
        whole(repo)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("moment", ["preflight on a server of its own", "runs the new versions"])
def test_a_server_that_follows_ends_within_a_change(
    revisions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    s3_server.use(monkeypatch)
    with s3_server.running(tmp_path) as store:
        url = f"s3://{store}/{s3_server.BUCKET}/followed"
        cli.trb("push", url, revisions / "one")
        follow = ("--engine=embedded", "--json", "--follow", "--interval=1")
        with serve_repository.serve(tmp_path, url, *follow) as running:
            running.ready()
            cli.trb("push", url, revisions / "two")
            serve_repository.until(lambda: moment in running.err.read_text(), 120)
            assert running.end(TERM) == 0
            said = running.err.read_text()
            assert "still serves" not in said and "Traceback" not in said
            assert "stopping the server" in said and said.endswith("stopped\n")
