"""A server that Triton's own fault ends is started again, and counted; any other end fails as ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import serve_repository as made

pytestmark = pytest.mark.server
ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.support.triton_faults import pytest_configure, pytest_runtest_protocol, pytest_terminal_summary
"""
TEST = """
import os, signal
from pathlib import Path

import pytest
import serve_repository as made
from tests.support.servers import free
from triton_repo_builder.run import serve

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    made.python(root, "one", (Path(__file__).parent / "model.py").read_text())
    with serve.start(root, free()) as running:
        yield running


def infer(server):
    running = made.Serve.__new__(made.Serve)
    running.http = server.urls.http
    assert running.infer("one") == 200


def test_first(server):
    infer(server)


def test_second(server):
    infer(server)
"""
DIES = """
    def initialize(self, args):
        import os, signal, sys
        from pathlib import Path
        self.dies = True
        counter = Path({counter!r})
        starts = len(counter.read_text()) if counter.exists() else 0
        counter.write_text("x" * (starts + 1))
        self.dies = starts < {times}

    def execute(self, requests):
        if self.dies:
            import os, signal, sys, time
            sys.stderr.write({words!r})
            sys.stderr.flush()
            os.kill(os.getppid(), signal.{signal})
            time.sleep(60)
        return self.answer(requests)
"""
COUNTED = "1 server that Triton ended was started again (server issue 8882):"
WORDS = "terminate called after throwing an instance of 'boost::interprocess::lock_exception'\n"


def session(tmp: Path, *options: str, times: int, words: str = WORDS, signal: str = "SIGABRT") -> str:
    """The output of pytest on two tests whose server ends so in its first starts."""
    folder = tmp / "session"
    folder.mkdir()
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TEST)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = server\n")
    dies = DIES.format(counter=str(tmp / "starts"), times=times, words=words, signal=signal)
    (folder / "model.py").write_text(made.HEALTHY.replace("def execute", "def answer") + dies)
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests" / "support")))
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)]
    done = subprocess.run(
        argv, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    return done.stdout


@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.slow), "1"])
def test_once_is_started_again_and_counted(workers: str, tmp_path: Path) -> None:
    said = session(tmp_path, "-n", workers, times=1)
    assert "2 passed" in said, said
    assert f"{COUNTED}\n  test_it.py::test_first" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("times", "words", "signal", "outcome", "counted"),
    [
        (2, WORDS, "SIGABRT", "1 failed, 1 passed", True),
        (1, "another reason\n", "SIGABRT", "2 failed", False),
        (1, WORDS, "SIGKILL", "2 failed", False),
    ],
)
def test_a_fault_of_ours_is_not_hidden(
    times: int, words: str, signal: str, outcome: str, counted: bool, tmp_path: Path
) -> None:
    said = session(tmp_path, "-n", "0", times=times, words=words, signal=signal)
    assert outcome in said, said
    assert ("that Triton ended" in said) is counted
