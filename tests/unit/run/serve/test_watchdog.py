"""Python processes of the server that end: which are lost, and that their models are loaded again."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triton_repo_builder import repository
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client.values import NoAnswer
from triton_repo_builder.run.serve.processes import stubs, watchdog


def test_a_python_process_that_ended_on_purpose_is_not_lost() -> None:
    def stub(pid: int, version: str, instance: str = "tok_0_0", dead: bool = True) -> stubs.Stub:
        place = {"model": "tok", "version": version, "instance": instance}
        return stubs.Stub(pid=pid, dead=dead, started=pid, **place)

    ready = {("tok", "2"), ("net", "1")}
    crashed = stub(1, "2", "tok_0_1")
    unloaded, completed = stub(2, "1"), stub(3, "2", "tok")
    replaced, successor = stub(4, "2"), stub(5, "2", dead=False)
    there = (crashed, unloaded, completed, replaced, successor)
    assert watchdog.lost(there[:4], there, ready) == [crashed]
    assert watchdog.lost(there[:4], there[:4], ready) == [crashed, replaced]
    assert watchdog.lost(there[:4], there, {("net", "1")}) == []


def test_an_older_process_that_still_lives_hides_no_lost_one_and_is_killed() -> None:
    """An unload that hangs leaves the process of before: the one that is current has died."""
    place = {"model": "tok", "version": "1", "instance": "tok_0_0"}
    left, died = (stubs.Stub(pid=pid, started=pid, dead=pid == 2, **place) for pid in (1, 2))
    other = stubs.Stub(pid=3, started=3, model="tok", version="2", instance="tok_0_0")
    ready = {("tok", "1")}
    assert watchdog.lost([died], (left, died, other), ready) == [died]
    assert watchdog.unused((left, died, other), ready) == [left, other]
    assert watchdog.unused((other,), {("tok", "2")}) == []


def test_a_server_that_gives_no_answer_once_is_watched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first question is for leftovers, the second for what the lost process served."""
    monkeypatch.setattr(watchdog, "SETTLE", 0.0)
    monkeypatch.setattr(watchdog, "LOOK", 0.0)
    monkeypatch.setattr(watchdog, "DECIDED", 0.0)
    ready = [SimpleNamespace(name="net", version="1", ready=True, state="READY")]
    answers = itertools.chain([None, ready, None, None], itertools.repeat(ready))
    reloaded = threading.Event()
    failed: list[TrbError] = []

    def index() -> list[Any]:
        if (answer := next(answers)) is None:
            raise NoAnswer("reset")
        return answer

    monkeypatch.setattr(watchdog, "HttpClient", lambda *_: SimpleNamespace(index_or_empty=index))

    class Watched(watchdog.Watchdog):
        def _reload(self, model: str, stubs: object, above: object) -> None:
            reloaded.set()

    other = stubs.Stub(pid=2, model="net", version="2", instance="net_0")
    dead = stubs.Stub(pid=1, model="net", version="1", instance="net_0", dead=True)
    made = Watched(
        "http://127.0.0.1:1",
        SimpleNamespace(scan=lambda: (dead, other), tick=0.01, kill=lambda pid: None),
        repository=lambda: repository.Repository(path=Path(), models=(), manifest=None),
        alive=lambda: True,
        progress=lambda text: None,
        on_failure=failed.append,
        timeout=1.0,
    )
    made.start()
    assert reloaded.wait(10)
    made.stop()
    made.join(10)
    assert not made.is_alive()
    assert failed == []


@pytest.mark.parametrize(("failures", "given_up"), [(0, False), (1, False), (2, False), (3, True)])
def test_a_reload_that_fails_is_tried_again(
    failures: int, given_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a new process may not answer Triton in time."""
    monkeypatch.setattr(watchdog, "AGAIN", 0.0)
    ready = [SimpleNamespace(name="net", version="1", ready=True)]
    client = SimpleNamespace(index_or_empty=lambda: ready)
    monkeypatch.setattr(watchdog, "HttpClient", lambda *_: client)
    said: list[str] = []
    tried: list[str] = []

    class Watched(watchdog.Watchdog):
        def _reload(self, model: str, stubs: object, above: object) -> None:
            tried.append(model)
            if len(tried) <= failures:
                raise TrbError(Code.MODEL_FAILED, "could not be loaded again", where=model)

    made = Watched(
        "http://127.0.0.1:1",
        SimpleNamespace(scan=tuple, tick=1.0),
        repository=lambda: repository.Repository(path=Path(), models=(), manifest=None),
        alive=lambda: True,
        progress=said.append,
        on_failure=lambda error: None,
        timeout=1.0,
    )
    dead = [stubs.Stub(pid=1, model="net", version="1", instance="net_0", dead=True)]
    if given_up:
        with pytest.raises(TrbError):
            made._restore("net", dead, ())
        return
    made._restore("net", dead, ())
    assert len(tried) == failures + 1
    assert said[-1] == "model 'net' is ready again"


@pytest.mark.parametrize(
    ("ready", "successor", "zombie", "reloaded"),
    [
        (False, False, False, True),
        (False, False, True, True),  # collected before it settled
        (True, False, False, False),
        (False, True, False, False),
    ],
)
def test_a_process_that_the_server_collected_is_lost_if_its_model_says_so(
    ready: bool, successor: bool, zombie: bool, reloaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Release 26.01 and later: the step says that it is not ready, the index and the ensemble do not."""
    monkeypatch.setattr(watchdog, "SETTLE", 0.0)
    monkeypatch.setattr(watchdog, "LOOK", 1e9)
    index = [SimpleNamespace(name=name, version="1", ready=True) for name in ("tokenizer", "both")]
    asked: list[str] = []

    def answer(model: str) -> bool:
        asked.append(model)
        return ready or model == "both"

    client = SimpleNamespace(index_or_empty=lambda: index, ready=answer)
    monkeypatch.setattr(watchdog, "HttpClient", lambda *_: client)
    done: list[str] = []

    class Watched(watchdog.Watchdog):
        def _reload(self, model: str, stubs: object, above: object) -> None:
            done.append(model)

    place = {"model": "tokenizer", "version": "1", "instance": "tokenizer_0_0"}
    first, second = (stubs.Stub(pid=pid, started=pid, **place) for pid in (1, 2))
    after = (second,) if successor else ()
    scans = iter([(first,), (replace(first, dead=True),) if zombie else after, after, after])
    made = Watched(
        "http://127.0.0.1:1",
        SimpleNamespace(scan=lambda: next(scans), tick=0.0),
        repository=lambda: repository.Repository(path=Path(), models=(), manifest=None),
        alive=lambda: True,
        progress=lambda text: None,
        on_failure=lambda error: None,
        timeout=1.0,
    )
    for now in (10.0, 11.0, 12.0, 13.0):
        seen = made._stubs.scan()
        made._restore_all(made._collected(seen, now), seen)
    assert {*asked} == {"tokenizer"}
    assert done == (["tokenizer"] if reloaded else [])
