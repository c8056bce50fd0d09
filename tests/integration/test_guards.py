"""The processes that clean up after a ``trb`` that cannot: whenever it is killed, nothing stays."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.support.serve_repository import Serve, serve, until, whole
from tests.support.servers import free
from triton_repo_builder.base import process
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.run.serve import workdir
from triton_repo_builder.run.serve.docker.cleanup import Cleanup
from triton_repo_builder.run.serve.embedded import supervisor
from triton_repo_builder.run.serve.embedded.engine import EmbeddedEngine

pytestmark = pytest.mark.server


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return whole(tmp_path / "repository")


@pytest.mark.slow
def test_nothing_stays_of_a_trb_that_is_killed_while_it_starts(tmp_path: Path, repository: Path) -> None:
    for step in range(8):
        running = Serve(tmp_path, repository, "--json")
        time.sleep(0.2 + 0.1 * step)
        running.process.kill()
        assert running.process.wait(60) == -signal.SIGKILL
        until(lambda: not any((tmp_path / "tmp").iterdir()))


def test_a_guard_whose_trb_is_gone_leaves_nothing(tmp_path: Path) -> None:
    """Before it was told what to run, and while that starts."""
    sleeper = supervisor.order(["/bin/sleep", "60"], dict(os.environ), str(tmp_path / "log"))
    for told in (b"", sleeper[:20], sleeper):
        argv = [sys.executable, "-I", "-S", supervisor.__file__, "1"]
        child = process.spawn_with_pipes(argv, env={**os.environ, "TMPDIR": str(tmp_path)})
        folder = workdir.folder(child)
        assert folder.is_dir() and folder.parent == tmp_path
        process.send(child, told)
        assert child.stdin is not None
        child.stdin.close()
        child.wait(30)
        assert not folder.exists()


def test_an_order_larger_than_a_pipe_arrives(tmp_path: Path) -> None:
    env = {**os.environ, "LARGE": "x" * 100_000, "ODD": "\udcff"}
    code = "import os, sys; print(len(os.environ['LARGE']), os.environb[b'ODD']); sys.exit(7)"
    child = process.spawn_with_pipes([sys.executable, "-I", "-S", supervisor.__file__, "1"], env=os.environ)
    folder = workdir.folder(child)
    log = tmp_path / "log"
    process.send(child, supervisor.order([sys.executable, "-c", code], env, str(log)))
    assert int(process.line(child, 20)) > 0
    assert child.wait(30) == 7
    assert log.read_text() == "100000 b'\\xff'\n"
    assert folder.is_dir()  # trb still lives, and may want the log
    shutil.rmtree(folder)


def test_trb_makes_no_folder_before_its_guard(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill in between would leave it for ever."""

    class Killed(BaseException):
        pass

    def leashed(*_: object, **__: object) -> None:
        raise Killed

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(process, "spawn_with_pipes", leashed)
    with pytest.raises(Killed):
        EmbeddedEngine().start(repository, free())
    with pytest.raises(Killed):
        Cleanup(repository)
    assert not any((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("name", ["with space", "it's", "$(touch made)", "é", "two\nlines"])
def test_a_folder_for_temporary_files_that_no_shell_reads(
    name: str, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton's Python backend gives the path of its stub to a shell: another folder is taken."""
    (tmp_path / name).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / name))
    child = process.spawn_with_pipes([sys.executable, "-I", "-S", supervisor.__file__, "1"], env=os.environ)
    folder = workdir.folder(child)
    assert folder.is_dir() and supervisor.PLAIN.fullmatch(str(folder))
    assert child.stdin is not None
    child.stdin.close()
    child.wait(30)
    assert not folder.exists()


def test_a_server_starts_all_the_same(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "it's").mkdir()
    with serve(tmp_path / "it's", repository, "--json") as running:
        running.ready()
        assert running.infer("whole") == 200
        assert running.end(signal.SIGTERM) == 0


def test_a_guard_that_does_not_start_is_quoted() -> None:
    child = process.spawn_with_pipes([sys.executable, "-c", "raise SystemExit('no room')"], env=os.environ)
    with pytest.raises(TrbError, match="cleanup process: no room"):
        workdir.folder(child)
