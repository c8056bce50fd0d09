from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import File
from triton_repo_builder.repository.journal import record, staging


def test_content_and_sources_are_described_alike(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc" * 9)
    given = File(path="x", content=b"abc" * 9), File(path="x", source=tmp_path / "a")
    assert given[0].sha256() == given[1].sha256() == files.hash_file(tmp_path / "a")
    assert given[0].size() == given[1].size() == 27


def test_a_source_is_linked_and_a_link_to_it_followed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("a")
    files.put(File(path="d/e/f", source=tmp_path / "link"), tmp_path)
    target = tmp_path / "d" / "e" / "f"
    assert (target.is_symlink(), target.read_bytes()) == (False, b"abc")


def test_a_source_is_copied_where_it_cannot_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "a").chmod(0o444)
    files.put(File(path="b", source=tmp_path / "a"), tmp_path)
    assert (tmp_path / "b").read_bytes() == b"abc"
    assert not (tmp_path / "b").samefile(tmp_path / "a")
    files.keep(tmp_path / "a", tmp_path / "c")
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o444


def test_a_file_that_only_its_owner_may_read_is_copied(tmp_path: Path) -> None:
    """A server under another user reads the repository's file."""
    (tmp_path / "mine").write_bytes(b"x")
    (tmp_path / "mine").chmod(0o600)
    files.put(File(path="f", source=tmp_path / "mine"), tmp_path / "stage")
    placed = tmp_path / "stage" / "f"
    assert placed.stat().st_mode & 0o004 and not placed.samefile(tmp_path / "mine")


def test_two_files_of_one_path_never_reach_the_users_file(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"precious")
    (tmp_path / "other").write_bytes(b"x")
    stage = tmp_path / "stage"
    files.put(File(path="f", source=tmp_path / "mine"), stage)
    for second in (File(path="f", content=b"y"), File(path="f", source=tmp_path / "other")):
        with pytest.raises(AssertionError, match="two files are called f"):
            files.put(second, stage)
    assert (tmp_path / "mine").read_bytes() == b"precious"


# --- staging -----------------------------------------------------------------------------------------


def test_the_stage_lies_beside_the_output_and_is_removed(tmp_path: Path) -> None:
    with staging.staging(tmp_path / "deep" / "repo") as stage:
        assert stage.parent == tmp_path / "deep"
        assert stage.name.startswith(".repo.trb-")
        (stage / "x" / "y").mkdir(parents=True)
    assert list((tmp_path / "deep").iterdir()) == []


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), RuntimeError(), OSError(errno.EACCES, "Permission denied")]
)
def test_the_stage_is_removed_after_a_failure(error: BaseException, tmp_path: Path) -> None:
    expected = TrbError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected), staging.staging(tmp_path / "repo") as stage:
        (stage / "x").write_text("x")
        raise error
    assert list(tmp_path.iterdir()) == []


def left(output: Path, *, age: float = 3600, begun: bool = False) -> Path:
    """A staging folder as a build that was killed ``age`` seconds ago leaves it."""
    killed = (
        "import os, signal, sys; from pathlib import Path\n"
        "from triton_repo_builder.repository.journal import record, staging\n"
        "with staging.staging(Path(sys.argv[1])) as stage:\n"
        "    (stage / 'weights').write_bytes(b'x' * 1000)\n"
        "    print(stage, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", killed, str(output)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    folder = Path(done.stdout.strip())
    if begun:
        (folder / record.NAME).write_text("{}")
    os.utime(folder, (time.time() - age,) * 2)
    return folder


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path: Path) -> None:
    folder = left(tmp_path / "repo")
    (tmp_path / ".other.trb-1234").mkdir()
    os.utime(tmp_path / ".other.trb-1234", (0, 0))
    with staging.staging(tmp_path / "repo"):
        assert not folder.exists()
    assert [path.name for path in tmp_path.iterdir()] == [".other.trb-1234"]


def test_what_may_be_needed_stays(tmp_path: Path) -> None:
    """A young one may belong to a build that just began; one with a journal may hold what was the user's."""
    folders = [left(tmp_path / "repo", age=0), left(tmp_path / "repo", begun=True)]
    with staging.staging(tmp_path / "repo"):
        assert all(folder.exists() for folder in folders)


def test_a_build_leaves_the_one_beside_it_alone(tmp_path: Path) -> None:
    with staging.staging(tmp_path / "repo") as mine:
        os.utime(mine, (0, 0))
        with staging.staging(tmp_path / "repo"):
            assert mine.exists()


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, Code.DISK_FULL),
        (errno.EDQUOT, Code.DISK_FULL),
        (errno.EACCES, Code.OUTPUT_NOT_WRITABLE),
        (errno.EROFS, Code.OUTPUT_NOT_WRITABLE),
    ],
)
def test_file_system_errors_are_explained(number: int, code: Code) -> None:
    assert files.explain(OSError(number, os.strerror(number)), Path("repo")).code == code


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_the_failure_of_a_copied_folder_is_its_first_file_s(number: int) -> None:
    """``shutil.copytree`` puts the causes into an error as text."""
    said = str(OSError(number, os.strerror(number), "a", None, "b"))
    error = files.explain(shutil.Error([("a", "b", said), ("c", "d", said)]), Path("folder"))
    expected = files.explain(OSError(number, os.strerror(number)), Path("folder"))
    assert (error.code, error.message, error.where) == (expected.code, expected.message, expected.where)
    assert files.is_full(shutil.Error([("a", "b", said)])) == (number == errno.ENOSPC)


def test_only_a_command_with_such_an_option_offers_another_disk() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    assert files.explain(full, Path("repo")).remedy == "free some space there"
    assert files.explain(full, Path("repo"), how="with --output").remedy.endswith(
        "another disk with --output"
    )


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_process_left_for_a_while_goes(temporary: Path) -> None:
    """Whole repositories lie in such folders; those of living processes, young and other ones stay."""
    old, young = temporary / "trb-held-pulled-old", temporary / "trb-held-pulled-young"
    other = temporary / "trb-held-revision-old"
    for folder in (old, young, other):
        (folder / "repository").mkdir(parents=True)
    for folder in (old, other):
        os.utime(folder, (0, 0))
    with staging.temporary("pulled") as mine:
        assert not old.exists()
        os.utime(mine, (0, 0))
        with staging.temporary("pulled") as second:
            assert {mine, second, young, other} == set(temporary.iterdir())
    assert {young, other} == set(temporary.iterdir())


def test_a_full_disk_of_temporary_files_is_named(temporary: Path) -> None:
    with pytest.raises(TrbError) as caught, staging.temporary("pulled"), staging.filling():
        raise OSError(errno.ENOSPC, "No space left on device")
    assert (caught.value.code, caught.value.where) == (Code.DISK_FULL, str(temporary))
    assert "by TMPDIR" in caught.value.remedy
    assert not list(temporary.iterdir())
    with pytest.raises(OSError, match="No space"), staging.temporary("pulled"):  # of standard output, say
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_repository_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, flags: int) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    with (
        pytest.raises(TrbError, match="cannot be read: Permission denied") as caught,
        staging.exclusive(tmp_path),
    ):
        pass
    assert caught.value.code is Code.REPOSITORY_UNREADABLE
