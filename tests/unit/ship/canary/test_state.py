"""The state beside a routes file, and the lock of the process that drives it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.canary import state
from triton_repo_builder.ship.canary.sample import Sample, Side
from triton_repo_builder.ship.canary.state import State, StateFiles

KEY = ("bert_post", "answers")
BASELINE = Side(
    sample=Sample(requests=10, failures=1, buckets={"0.01": 9.0, "+Inf": 9.0}),
    counts={KEY: {"a": 4.0}},
    texts={KEY: 4.0},
)


def example() -> State:
    return State(
        name="bert",
        deploy="deploy.toml",
        stable="http://s",
        canary="http://c",
        traefik="http://t",
        steps=(10, 100),
        step=1,
        weight=10,
        baseline=BASELINE,
        history=({"percent": 0},),
    )


def test_written_and_read_back(tmp_path: Path) -> None:
    files = StateFiles(routes=tmp_path / "routes.yml")
    assert files.load() is None
    files.save(example())
    assert files.load() == example()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["routes.yml.canary.json"]
    files.forget()
    files.forget()
    assert files.load() is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 2}', "\xff"])
def test_a_damaged_state_is_said(tmp_path: Path, content: str) -> None:
    files = StateFiles(routes=tmp_path / "routes.yml")
    files.state.write_text(content)
    with pytest.raises(TrbError) as caught:
        files.load()
    assert caught.value.code == Code.REPOSITORY_UNREADABLE


def test_each_lost_key_is_a_damaged_state(tmp_path: Path) -> None:
    files = StateFiles(routes=tmp_path / "routes.yml")
    document = json.loads(json.dumps(example().to_json()))
    for name in document:
        files.state.write_text(json.dumps({key: value for key, value in document.items() if key != name}))
        with pytest.raises(TrbError):
            files.load()


def test_one_process_drives_it(tmp_path: Path) -> None:
    files = StateFiles(routes=tmp_path / "routes.yml")
    assert not files.running()
    with files.locked() as alone:
        assert alone
        assert files.running()
        with files.locked() as second:
            assert not second
    assert not files.running()


def test_a_request_is_heard_once(tmp_path: Path) -> None:
    files = StateFiles(routes=tmp_path / "routes.yml")
    assert files.asked() == ""
    files.request(state.ABORT)
    assert (files.asked(), files.asked()) == (state.ABORT, "")
    files.ask.write_text("something else")
    assert files.asked() == ""
