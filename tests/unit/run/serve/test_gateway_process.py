"""The gateway beside a server: when it counts as started, and when it is started again; without a process."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.serve import gateway_process
from triton_repo_builder.run.serve.gateway_process import GatewayProcess

READY = json.dumps({"url": "http://127.0.0.1:9000", "triton": "127.0.0.1:8001"})
BUSY = {"code": "port-busy", "exit_code": 6, "error": "port 9000", "where": "", "remedy": "another"}


class Child:
    """Prints lines, then bytes until it is ended."""

    def __init__(self, lines: list[str]) -> None:
        self.pid = 7
        self.lines = lines
        self.output: queue.Queue[bytes] = queue.Queue()
        self.ended = not any("url" in line for line in lines)

    def poll(self) -> int | None:
        return 1 if self.ended else None

    def wait(self) -> int:
        return 1

    def die(self) -> None:
        self.ended = True
        self.output.put(b"")


class Case:
    """Children in their order, and what was said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.waiting: list[list[str]] = []
        self.children: list[Child] = []
        self.argv: list[str] = []
        self.said: list[str] = []
        self.log = folder / "server.log"
        self.log.touch()
        self.started = threading.Semaphore(0)
        fake = SimpleNamespace(
            python=lambda *words: [*words],
            spawn_with_pipes=self._spawn,
            line=lambda child, timeout: child.lines.pop(0) if child.lines else "",
            chunks=self._chunks,
            end=lambda child, grace, number=None: child.die(),
        )
        monkeypatch.setattr(gateway_process, "process", fake)

    def _spawn(self, argv: list[str], *, env: Any) -> Child:
        self.argv = argv
        self.children.append(Child(self.waiting.pop(0)))
        return self.children[-1]

    def _chunks(self, child: Child) -> Iterator[bytes]:
        self.started.release()
        while piece := child.output.get():
            yield piece

    def start(self, *lines: list[str], flags: tuple[str, ...] = ()) -> GatewayProcess:
        self.waiting = list(lines)
        return GatewayProcess(["--url=a:1", *flags], "0.0.0.0", 9000, lambda: self.log, self.said.append)


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Case:
    return Case(monkeypatch, tmp_path)


def test_it_is_started_when_it_says_its_url(case: Case) -> None:
    gateway = case.start(["warning: everybody can use it", '{"level": "info"}', READY])
    assert gateway.url == "http://127.0.0.1:9000"
    assert case.said == ["warning: everybody can use it"]
    assert {"--host=0.0.0.0", "--port=9000", "--url=a:1", gateway_process.ENDS_WITH_INPUT} < {*case.argv}
    gateway.stop(10)
    assert case.children[0].ended and case.said[1:] == []


@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        (["error: port 9000", json.dumps(BUSY)], Code.PORT_BUSY, "port 9000"),
        (["Traceback"], Code.SERVER_DIED, "Traceback"),
        ([], Code.SERVER_DIED, "said nothing"),
    ],
)
def test_one_that_does_not_start_is_an_error(case: Case, lines: list[str], code: Code, words: str) -> None:
    with pytest.raises(TrbError) as error:
        case.start(lines)
    assert error.value.code is code and words in error.value.message


def test_its_lines_are_information_in_the_servers_log(case: Case) -> None:
    gateway = case.start([READY])
    case.children[0].output.put(b"first\nsec")
    case.children[0].output.put(b"ond\nlast")
    gateway.stop(10)
    lines = case.log.read_text().splitlines()
    assert [line.split("] ")[1] for line in lines] == ["first", "second", "last"]
    assert all(line.startswith("I") and " 7 gateway:0] " in line for line in lines)


def test_its_lines_are_objects_in_a_log_of_json(case: Case) -> None:
    gateway = case.start(['{"level": "warning", "message": "open"}', READY], flags=("--log-format=json",))
    assert case.said == ["warning: open"]
    case.children[0].output.put(b'{"id":"a"}\nTraceback\n')
    gateway.stop(10)
    own, wrapped = map(json.loads, case.log.read_text().splitlines())
    assert own == {"id": "a"} and wrapped["message"] == "Traceback"


def test_it_is_started_again_until_it_works(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    gateway = case.start([READY], ["boom"], [READY])

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        return False

    monkeypatch.setattr(gateway._stopping, "wait", wait)
    case.started.acquire()
    case.children[0].die()
    assert case.started.acquire(timeout=30)
    assert pauses == [1.0, 2.0]
    assert gateway.restarts == 1 and "answers again" in case.said[-1]
    assert any("boom" in text for text in case.said)
    gateway.stop(10)
    assert len(case.children) == 3
