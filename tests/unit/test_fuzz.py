"""Every input that was a finding once, and some new ones; ``make fuzz`` runs a million."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.reliability.fuzz import SEEDS
from tests.reliability.guard import Outside
from tests.reliability.readers import READERS
from tests.reliability.session import Session, failures, guard

pytestmark = pytest.mark.filterwarnings("ignore")
FRESH = 300
"""New executions of a reader that costs little; the others have fewer, by their share."""


GRAPHS = ("build", "inspect", "onnx")
"""Readers that run ONNX's inference under a limit on memory: in a process of its own, as in a command. In one
that has run a thousand tests, its C++ code crashed where an allocation failed."""


@pytest.fixture(params=sorted(READERS))
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    yield Session(READERS[request.param], tmp_path)


def wrong(session: Session, inputs: Mapping[str, bytes]) -> dict[str, str]:
    """What is wrong, by the inputs' names."""
    if session.reader.name not in GRAPHS:
        return {name: failure.text for name, data in inputs.items() if (failure := session.run(data))}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(failures, session.reader.name, dict(inputs)).result()


def test_what_was_found_once_is_mended(session: Session) -> None:
    files = sorted((SEEDS / session.reader.name).glob("*"))
    assert wrong(session, {file.name: file.read_bytes() for file in files}) == {}


def test_real_files_are_read(session: Session) -> None:
    assert wrong(session, {str(number): data for number, data in enumerate(session.seeds[:10])}) == {}


def test_damaged_files_succeed_or_give_one_error(session: Session) -> None:
    count = round(FRESH * min(1.0, session.reader.share)) + 5
    assert wrong(session, {str(number): session.input("unit", number) for number in range(count)}) == {}


def test_every_folder_of_seeds_is_a_readers() -> None:
    assert {folder.name for folder in SEEDS.iterdir()} <= READERS.keys()


def test_an_input_is_the_same_each_time(tmp_path: Path) -> None:
    session = Session(READERS["report"], tmp_path)
    assert [session.input("a", n) for n in range(20)] == [session.input("a", n) for n in range(20)]
    assert session.input("a", 1) != session.input("b", 1)


@pytest.mark.parametrize("attempt", ["write", "remove", "rename", "folder"])
def test_the_guard_stops_changes_outside(attempt: str, tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    victim = tmp_path / "victim"
    victim.write_text("x")
    actions = {
        "write": lambda: victim.write_text("y"),
        "remove": victim.unlink,
        "rename": lambda: victim.rename(tmp_path / "inside" / "a"),
        "folder": lambda: (tmp_path / "inside" / ".." / "new").mkdir(),
    }
    with pytest.raises(Outside), guard().only([str(tmp_path / "inside")]):
        actions[attempt]()
    assert victim.read_text() == "x"
    assert not (tmp_path / "new").exists()
    with guard().only([str(tmp_path / "inside")]):
        (tmp_path / "inside" / "b").write_text("y")
