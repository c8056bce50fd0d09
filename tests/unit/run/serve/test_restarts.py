"""When a server is started again, how often, and with what; without a server."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.journal import staging
from triton_repo_builder.run.client import Urls
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.run.serve import restarts

READY, UNLOADED, FAILED = ("READY", ""), ("UNAVAILABLE", "unloaded"), ("UNAVAILABLE", "boom")
REFUSED = TrbError(Code.MODEL_FAILED, "ended: cannot be loaded")


class Server:
    """Runs for some seconds of a clock that only the test moves, then ends."""

    urls = Urls(http="http://127.0.0.1:8100", grpc="127.0.0.1:8101", metrics="http://127.0.0.1:8102/metrics")
    log = Path("server.log")

    def __init__(self, clock: list[float], lives: float, final: bool) -> None:
        self._clock, self._lives, self.final = clock, lives, final

    def wait(self, tick: Callable[[], None]) -> None:
        self._clock[0] += self._lives
        tick()
        raise TrbError(Code.SERVER_DIED, "ended")

    def stop(self) -> None:
        pass


class Case:
    """A repository, the index of its server, and what was asked of the engine."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.index = {"whole": READY, "step": READY, "other": READY}
        self.pauses: list[float] = []
        self.options: list[ServeOptions] = []
        self.said: list[str] = []
        self._clock = [0.0]
        step = 'ensemble_scheduling { step [ { model_name: "step" model_version: -1 } ] }'
        self._model("whole", f'platform: "ensemble"\n{step}\n')
        self._model("step", 'backend: "python"\n')
        self._model("other", 'backend: "python"\n')
        clock = SimpleNamespace(monotonic=lambda: self._clock[0], sleep=self.pauses.append)
        monkeypatch.setattr(restarts, "time", clock)
        client = SimpleNamespace(states=lambda: self.index)
        monkeypatch.setattr(restarts, "HttpClient", lambda *_: client)

    def _model(self, name: str, config: str) -> None:
        (self.root / name / "1").mkdir(parents=True)
        (self.root / name / "config.pbtxt").write_text(config)

    def run(
        self,
        *lives: float | TrbError,
        limit: int = 3,
        final: bool = False,
        before: Callable[[], object] = int,
        ends: str = "ended",
    ) -> int:
        """Servers that live so many seconds; an error is a start that fails. The number of restarts."""
        waiting = list(lives)

        def start(options: ServeOptions) -> Any:
            self.options.append(options)
            life = waiting.pop(0)
            if isinstance(life, TrbError):
                raise life
            return Server(self._clock, life, final)

        kept = restarts.KeptServer(start, self.root, ServeOptions(http_port=0), limit, self.said.append)
        before()
        with pytest.raises(TrbError, match=ends):
            kept.wait(lambda: None)
        assert not waiting
        return kept.restarts

    def loads(self) -> tuple[str, ...]:
        """The models of the last start."""
        return self.options[-1].models


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(tmp_path / "repository", monkeypatch)


def test_pauses_grow_up_to_the_bound(case: Case) -> None:
    assert case.run(1, 1, 1, 1) == 3
    assert case.pauses == [1, 2, 4]


def test_a_pause_is_a_minute_at_most(case: Case) -> None:
    assert case.run(*[1.0] * 9, limit=8) == 8
    assert case.pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_repository_that_is_gone_counts(case: Case) -> None:
    assert case.run(1, limit=2, before=lambda: shutil.rmtree(case.root), ends="No such file") == 0
    assert case.pauses == [1, 2]


def test_a_quiet_time_begins_anew(case: Case) -> None:
    assert case.run(1, 1, restarts.QUIET, 1, 1, 1) == 5
    assert case.pauses == [1, 2, 1, 2, 4]


def test_a_start_that_fails_counts(case: Case) -> None:
    assert case.run(1, REFUSED, REFUSED, 1) == 1
    assert case.pauses == [1, 2, 4]
    assert case.run(1, REFUSED, REFUSED, REFUSED) == 0


@pytest.mark.parametrize(("limit", "final"), [(0, False), (3, True)])
def test_none_at_all(case: Case, limit: int, final: bool) -> None:
    assert case.run(1, limit=limit, final=final) == 0
    assert not case.pauses and not case.said


def test_a_first_start_that_fails_is_an_error(case: Case) -> None:
    with pytest.raises(TrbError, match="cannot be loaded"):
        case.run(REFUSED)
    assert len(case.options) == 1


def test_ports_and_log_stay(case: Case) -> None:
    case.run(1, 1, limit=1)
    first, second = case.options
    assert (first.http_port, first.log_file, first.log_append) == (0, None, False)
    assert (second.http_port, second.grpc_port, second.metrics_port) == (8100, 8101, 8102)
    assert (second.log_file, second.log_append) == (Path("server.log"), True)


@pytest.mark.parametrize(
    ("index", "loads"),
    [
        ({}, ("other", "whole")),
        ({"other": UNLOADED}, ("whole",)),
        ({"other": FAILED}, ("other", "whole")),
        ({"whole": UNLOADED}, ("other", "step")),
        ({"other": UNLOADED, "whole": UNLOADED, "step": UNLOADED}, ("none",)),
        ({"gone": READY}, ("other", "whole")),
        ({"new": FAILED}, ("other", "whole")),
    ],
)
def test_what_was_loaded_is_loaded(case: Case, index: dict[str, tuple[str, str]], loads: Any) -> None:
    case.run(restarts.LOOK, 1, limit=1, before=lambda: case.index.update(index))
    assert sorted(case.loads()) == sorted(loads)
    assert ("gone is no longer in the repository" in "".join(case.said)) == ("gone" in index)


@pytest.mark.slow
def test_a_repository_that_is_being_changed_is_waited_for(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promote that the end interrupts puts its files back first."""
    import fcntl
    import os

    monkeypatch.setattr(staging, "PATIENCE", 0.0)
    held = os.open(case.root, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    monkeypatch.setattr(
        restarts.time, "sleep", lambda pause: (case.pauses.append(pause), pause == 4 and os.close(held))
    )
    assert case.run(1, 1, limit=3) == 1
    assert "another trb is changing this folder now" in "".join(case.said)
