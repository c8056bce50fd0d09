"""A promotion that is killed, whose server dies, that meets another one; and readiness during one."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.test_promote import made, only, repo, serve, served
from tests.support import cli
from tests.support.probe import Probe
from triton_repo_builder.base.errors import Code
from triton_repo_builder.repository.journal import record, staging
from triton_repo_builder.run.serve import RunningServer
from triton_repo_builder.run.serve.loading import load_unload

__all__ = ["made", "repo"]
pytestmark = pytest.mark.server


def contents(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def address(server: RunningServer) -> tuple[str, ...]:
    return ("--url", server.urls.http, "--grpc-url", server.urls.grpc)


@contextmanager
def promoting(repo: Path, server: RunningServer, until: str) -> Iterator[subprocess.Popen[str]]:
    """``trb promote`` in a process of its own, from the moment at which it says ``until``."""
    argv = [*cli.ARGV, "promote", "sentiment", str(repo), "--version", "2", "--no-preflight"]
    process = subprocess.Popen(
        [*argv, *address(server)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if until in line:
            break
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "moment",
    ["sentiment_model: versions 1 and 2", pytest.param("smoke: version 2", marks=pytest.mark.slow)],
)
def test_a_promotion_that_was_killed_is_undone_and_can_be_run_again(repo: Path, moment: str) -> None:
    before = contents(repo)
    with serve(repo) as server:
        with promoting(repo, server, moment) as process:
            process.send_signal(signal.SIGKILL)
            process.wait()
        done = cli.call("check", repo)
        assert cli.kind(done.stderr) == Code.REPOSITORY_UNREADABLE
        done = cli.call("fetch", repo)
        assert "had left the repository half changed" in done.stderr
        assert contents(repo) == before
        settled = cli.call("promote", "sentiment", repo, "--version", "1", *address(server))
        assert settled.returncode == 0, settled.stderr
        assert "smoke: version 1 as it is served now" in settled.stdout
        assert served(server) == only("1")
        again = cli.call("promote", "sentiment", repo, "--version", "2", "--no-preflight", *address(server))
        assert again.returncode == 0, again.stderr
        assert served(server) == only("2")
    assert cli.call("check", repo, "--strict").returncode == 0


def test_the_repository_is_as_before_if_the_server_dies(repo: Path) -> None:
    before = contents(repo)
    with serve(repo) as server, promoting(repo, server, "sentiment_model: versions 1 and 2") as process:
        os.kill(load_unload.find(server.urls.http).pid, signal.SIGKILL)
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == Code.PROMOTE_FAILED.exit, stderr
    assert cli.kind(stderr) == Code.PROMOTE_FAILED
    assert "the server ended during 'sentiment_model: versions 1 and 2'" in stderr
    assert contents(repo) == before


@pytest.mark.slow
def test_a_disk_that_fails_at_the_last_step_takes_the_server_back_too(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal of the change cannot be removed: all was done by then, on the server as well."""
    before, unlink, failed = contents(repo), Path.unlink, list[Path]()

    def full_once(path: Path, missing_ok: bool = False) -> None:
        if path.name == record.NAME and not failed:
            failed.append(path)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        unlink(path, missing_ok=missing_ok)

    with serve(repo) as server:
        monkeypatch.setattr(Path, "unlink", full_once)
        done = cli.call("promote", "sentiment", repo, "--version", "2", "--no-preflight", *address(server))
        assert failed and cli.kind(done.stderr) == Code.DISK_FULL
        assert served(server) == only("1")
        assert contents(repo) == before
        again = cli.call("promote", "sentiment", repo, "--version", "2", "--no-preflight", *address(server))
        assert again.returncode == 0, again.stderr
        assert served(server) == only("2")


def test_the_second_of_two_promotions_says_so(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(repo)
    held = threading.Event()
    done = threading.Event()

    def hold() -> None:
        with staging.exclusive(repo):
            held.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    try:
        ended = cli.process(repo.parent, "promote", "sentiment", str(repo), "--version", "2")
    finally:
        done.set()
        holder.join()
    assert cli.kind(ended.stderr) == Code.REPOSITORY_BUSY
    assert ended.returncode == Code.REPOSITORY_BUSY.exit
    assert contents(repo) == before


@pytest.mark.slow
def test_the_endpoint_is_ready_all_the_time(repo: Path) -> None:
    with serve(repo) as server:
        with Probe(server.urls.http, "/v2/models/sentiment/ready") as endpoint:
            for command in ("promote", "rollback"):
                more = ("--version", "2", "--no-preflight") if command == "promote" else ()
                cli.trb_apart(command, "sentiment", str(repo), *more, *address(server))
        assert endpoint.asked > 20
        assert endpoint.refused == 0
        assert served(server) == only("1")
