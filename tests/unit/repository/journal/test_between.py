"""The mark of an apply that takes a repository through states between the old one and the new one."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.journal import between, record, recovery, seal, staging

OLD, MIDDLE, NEW = "old manifest", "one between", "new manifest"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "repo").mkdir()
    return tmp_path / "repo"


@pytest.fixture
def left(root: Path) -> Path:
    """The staging folder of a process that was killed."""
    stage = root.parent / f".{root.name}.trb-x"
    stage.mkdir()
    seal.mark(stage)
    between.mark(stage, "sentiment", [OLD, NEW])
    return stage


def say(root: Path, text: str) -> None:
    (root / "manifest.json").write_text(text)


def code(root: Path) -> Code:
    with pytest.raises(TrbError) as caught:
        between.refuse(root)
    assert "sentiment" in caught.value.message
    return caught.value.code


def test_what_was_left_between_is_refused_until_it_is_applied(root: Path, left: Path) -> None:
    say(root, MIDDLE)
    assert code(root) is Code.APPLY_FAILED
    (line,) = recovery.recover(root)
    assert "'sentiment' between two states" in line
    assert code(root) is Code.APPLY_FAILED
    between.clear(root, "other")
    assert code(root) is Code.APPLY_FAILED
    between.clear(root, "sentiment")
    between.refuse(root)


def test_what_changes_now_is_busy(root: Path, left: Path) -> None:
    say(root, MIDDLE)
    with staging.locked(left):
        assert code(root) is Code.REPOSITORY_BUSY
        assert recovery.recover(root) == ()
        between.clear(root, "sentiment")
        assert code(root) is Code.REPOSITORY_BUSY


@pytest.mark.parametrize("text", [OLD, NEW])
def test_a_kill_before_the_first_or_after_the_last_change_leaves_nothing(
    root: Path, left: Path, text: str
) -> None:
    say(root, text)
    between.refuse(root)
    assert recovery.recover(root) == ()
    assert not left.exists()


def test_a_journal_that_is_damaged_is_an_error(root: Path, left: Path) -> None:
    say(root, MIDDLE)
    (left / record.NAME).write_text('{"endpoint": "senti')
    for reader in (between.refuse, recovery.recover):
        with pytest.raises(TrbError, match="a journal that is damaged"):
            reader(root)
    between.clear(root)
    assert (left / record.NAME).exists()


def test_the_end_of_an_apply_ends_no_other_change(root: Path, left: Path) -> None:
    (root / "a").write_text("new")
    change = record.Journal(kind=record.Kind.EDIT, entries=(record.Entry(path="a", before="", after=()),))
    record.begin(left, change)
    between.clear(root)
    assert (left / record.NAME).exists()


def test_without_leave_to_write_the_mark_stays(root: Path, left: Path) -> None:
    say(root, NEW)
    assert recovery.recover(root, write=False) == ()
    assert (left / record.NAME).exists()
