"""What a process that was killed left is undone by the next command, which leaves nothing of it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import tiny

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.repository.journal import record, recovery, seal, staging, undo


class Killed(BaseException):
    """In place of a signal: nothing of the process runs after it."""


@pytest.mark.parametrize("name", ["one", ".one.trb-5"])
def test_a_killed_change_of_files_leaves_no_folder(
    output: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Killed after the new file has taken its place, or before, while it is written beside it."""
    output.mkdir()
    (output / "one").write_text("old")
    before = tiny.tree(output)
    with monkeypatch.context() as patched:
        patched.setattr(undo.Edit, "undo", lambda *_: None)
        with pytest.raises(Killed), undo.undoable(output, {"one": [b"new"]}):
            (output / name).unlink(missing_ok=True)
            (output / name).write_text("new")
            raise Killed
    assert staging.leftovers(output)
    assert len(recovery.recover(output)) == 1
    assert (tiny.tree(output), staging.leftovers(output)) == (before, [])


def test_what_was_killed_before_its_journal_leaves_no_folder(output: Path) -> None:
    output.mkdir()
    stage = output.with_name(f".{output.name}.trb-1")
    (stage / record.OLD).mkdir(parents=True)
    seal.mark(stage)
    assert recovery.recover(output) == ()
    assert not stage.exists()


def test_a_change_whose_journal_stays_is_undone_at_once(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output.mkdir()
    (output / "one").write_text("old")
    unlink, refusals = Path.unlink, iter([PermissionError(13, "Permission denied")])

    def denied(path: Path, missing_ok: bool = False) -> None:
        if path.name == record.NAME and (error := next(refusals, None)):
            raise error
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", denied)
    with pytest.raises(TrbError), undo.undoable(output, {"one": [b"new"]}):
        files.write(output / "one", b"new")
    assert (output / "one").read_text() == "old"
    assert staging.leftovers(output) == []


def test_what_was_kept_is_not_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is removed once: a disk that fails afterwards, or a Ctrl-C, puts nothing back."""
    output = tmp_path / "repo"
    output.mkdir()
    (output / "one").write_bytes(b"old")
    unlink, removed = Path.unlink, list[Path]()

    def once(path: Path, missing_ok: bool = False) -> None:
        if path.name == record.NAME:
            if removed:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            removed.append(path)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", once)
    with undo.undoable(output, {"one": [b"new"]}) as keep:
        (output / "one").write_bytes(b"new")
        keep()
    assert removed
    with pytest.raises(KeyboardInterrupt), undo.undoable(output, {"one": [b"newer"]}) as keep:
        (output / "one").write_bytes(b"newer")
        removed.clear()
        keep()
        raise KeyboardInterrupt
    assert (output / "one").read_bytes() == b"newer"


def test_a_folder_that_is_called_like_an_unfinished_file_does_not_end_the_way_back(output: Path) -> None:
    output.mkdir()
    (output / "one").write_bytes(b"old")
    (output / ".one.trb-zz").mkdir()
    with pytest.raises(Killed), undo.undoable(output, {"one": [b"new"]}):
        files.write(output / "one", b"new")
        raise Killed
    assert (output / "one").read_bytes() == b"old"
    assert staging.leftovers(output) == []
