"""A swap is done as a whole, or undone: at once, or by the next build where the process was killed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
from click.testing import CliRunner, Result

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.cli import group
from triton_repo_builder.repository.journal import recovery, staging, swap

NAMES = ("a", "b", "gone", "manifest.json")


def prepared(tmp_path: Path, *, fresh: bool = False) -> tuple[Path, Path]:
    """(stage, output): a and manifest are replaced, b is new, gone is removed, other stays."""
    stage, output = tmp_path / "stage", tmp_path / "repo"
    for root, names in ((stage, ("a", "b")), *(() if fresh else ((output, ("a", "gone", "other")),))):
        for name in names:
            (root / name).mkdir(parents=True)
            (root / name / "f").write_text(f"{root.name} {name}")
        (root / "manifest.json").write_text(root.name)
    return stage, output


def test_swap(tmp_path: Path) -> None:
    stage, output = prepared(tmp_path)
    swap.swap(stage, output, NAMES)
    assert {path.name for path in output.iterdir()} == {"a", "b", "other", "manifest.json"}
    assert (output / "a" / "f").read_text() == "stage a"
    assert (output / "other" / "f").read_text() == "repo other"
    assert (output / "manifest.json").read_text() == "stage"


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
@pytest.mark.parametrize("after", [False, True], ids=["before the rename", "after the rename"])
@pytest.mark.parametrize("step", range(1, 7))
def test_a_swap_is_undone_whichever_step_fails(
    step: int, after: bool, error: BaseException, fresh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, output = prepared(tmp_path, fresh=fresh)
    before = tiny.tree(output) if not fresh else None
    rename, calls = Path.rename, 0

    def failing(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls != step:
            return rename(self, target)
        if after:  # Ctrl-C is noticed between two instructions, too
            rename(self, target)
        raise error

    monkeypatch.setattr(Path, "rename", failing)
    if fresh and step > 3:
        with contextlib.suppress(type(error)):  # all is in place already
            swap.swap(stage, output, NAMES)
        assert (output / "manifest.json").read_text() == "stage"
        return
    with pytest.raises(type(error)):
        swap.swap(stage, output, NAMES)
    assert calls >= step
    if fresh:
        assert not output.exists()
    else:
        assert tiny.tree(output) == before


# --- killed ------------------------------------------------------------------------------------------

UNDONE = "a trb that was killed had left the repository half replaced: it is as it was before"
FINISHED = "a trb that was killed had replaced all that it was to: finished"
KILLED = """
import os, signal, sys
from pathlib import Path
from triton_repo_builder.repository.journal import record, recovery, staging, swap

output, step, after, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "after", sys.argv[4:]
rename, end, calls = Path.rename, record.end, 0

def killed(act, *arguments):
    global calls
    calls += 1
    if calls == step and after:
        act(*arguments)
    if calls == step:
        os.kill(os.getpid(), signal.SIGKILL)
    return act(*arguments)

Path.rename = lambda self, target: killed(rename, self, target)
record.end = lambda stage: killed(end, stage)
if not names:
    recovery.recover(output)
    sys.exit()
with staging.staging(output) as stage:
    (output.parent / "stage").rename(stage / "new")
    if names == ["."]:
        swap.replace(stage, output)
        sys.exit()
    for place in (stage / "new").iterdir():
        rename(place, stage / place.name)
    swap.swap(stage, output, names)
"""


def kill(output: Path, step: int, after: bool, *names: str) -> bool:
    """Swap ``names`` (else recover), killed at this rename; False where there are fewer."""
    argv = [sys.executable, "-c", KILLED, str(output), str(step), "after" if after else "before", *names]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def refused(output: Path) -> bool:
    """Whether a command that only reads refuses a repository, as half replaced."""
    try:
        assert recovery.recover(output, write=False) == ()
    except TrbError as error:
        assert error.code is Code.REPOSITORY_UNREADABLE
        assert "half replaced" in error.message
        return True
    return False


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("after", [False, True], ids=["before the rename", "after the rename"])
@pytest.mark.parametrize("step", range(2, 10))
def test_a_swap_that_was_killed_is_undone_whichever_step_it_was(
    step: int, after: bool, fresh: bool, tmp_path: Path
) -> None:
    stage, output = prepared(tmp_path, fresh=fresh)
    before, new = tiny.tree(output) if not fresh else None, tiny.tree(stage)
    steps = 1 + (3 if fresh else 6) + 1  # the test's own, the swap's, and the removal of the journal
    assert kill(output, step, after, *NAMES) == (step <= steps)
    if step > steps:
        return
    half = refused(output)
    assert len(list(tmp_path.glob(".repo.trb-*"))) == 1
    moved = step - 2 + after
    if moved >= steps - 2:
        ended = moved > steps - 2
        assert (half, recovery.recover(output)) == (False, () if ended else (FINISHED,))
        assert {path: digest for path, digest in tiny.tree(output).items() if path in new} == new
    else:
        assert half == (moved > 0)
        assert recovery.recover(output) == ((UNDONE,) if moved else ())
        assert (tiny.tree(output) if output.exists() else None) == before
    assert not list(tmp_path.glob(".repo.trb-*"))


@pytest.mark.parametrize("after", [False, True], ids=["before the rename", "after the rename"])
@pytest.mark.parametrize("step", range(1, 7))
def test_a_recovery_that_was_killed_is_gone_on_with(step: int, after: bool, tmp_path: Path) -> None:
    _, output = prepared(tmp_path)
    before = tiny.tree(output)
    assert kill(output, 7, False, *NAMES)  # all but the manifest are in place: five renames
    assert kill(output, step, after)
    recovery.recover(output)
    assert tiny.tree(output) == before


@pytest.mark.parametrize("after", [False, True], ids=["before the rename", "after the rename"])
@pytest.mark.parametrize("step", range(2, 5))
def test_a_pull_that_was_killed_is_undone_or_finished(step: int, after: bool, tmp_path: Path) -> None:
    """Both renames of the whole folder, and the removal of the journal."""
    stage, output = prepared(tmp_path)
    before, new = tiny.tree(output), tiny.tree(stage)
    assert kill(output, step, after, ".")
    done = step - 2 + after
    assert refused(output) == (done == 1)
    assert recovery.recover(output) == {1: (UNDONE,), 2: (FINISHED,)}.get(done, ())
    assert tiny.tree(output) == (new if done > 1 else before)
    assert not list(tmp_path.glob(".repo.trb-*"))


def test_a_folder_that_was_made_after_a_killed_pull_is_left_alone(tmp_path: Path) -> None:
    _, output = prepared(tmp_path)
    assert kill(output, 2, True, ".")
    output.mkdir()
    with pytest.raises(TrbError, match=r"changed after that: \."):
        recovery.recover(output)


@pytest.mark.parametrize("change", ["edited", "added", "removed", "in the way", "all removed"])
def test_what_was_changed_meanwhile_is_left_alone(change: str, tmp_path: Path) -> None:
    _, output = prepared(tmp_path)
    assert kill(output, 4 if change == "in the way" else 7, False, *NAMES)
    if change == "edited":
        (output / "a" / "f").write_text("mine")
    if change == "added":
        (output / "a" / "mine").mkdir()
    if change == "removed":
        (output / "a" / "f").unlink()
    if change == "in the way":
        (output / "b").mkdir()
    if change == "all removed":
        shutil.rmtree(output)
    before = tiny.tree(tmp_path)
    with pytest.raises(TrbError, match="changed after that: ") as caught:
        recovery.recover(output)
    assert caught.value.code == Code.EDITED_FILE
    [backup] = tmp_path.glob(".repo.trb-*/.old")
    assert f"what was there before is in {backup}" in caught.value.remedy
    assert tiny.tree(tmp_path) == before


def test_what_the_swap_had_not_come_to_may_change(tmp_path: Path) -> None:
    _, output = prepared(tmp_path)
    assert kill(output, 3, False, *NAMES)
    (output / "gone" / "mine").write_text("mine")
    assert recovery.recover(output) == (UNDONE,)
    assert (output / "gone" / "mine").read_text() == "mine"


def test_a_build_that_runs_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, output = prepared(tmp_path)
    assert kill(output, 5, False, *NAMES)
    before = tiny.tree(tmp_path)
    [stage] = tmp_path.glob(".repo.trb-*")
    with staging.locked(stage) as mine:
        assert mine
        monkeypatch.setattr(staging, "PATIENCE", 0.0)
        with pytest.raises(TrbError) as caught:
            recovery.recover(output)
        assert caught.value.code == Code.REPOSITORY_BUSY
    assert tiny.tree(tmp_path) == before


def test_what_cannot_be_undone_at_once_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the next build can: the disk answers again."""
    stage, output = prepared(tmp_path)
    before, rename, calls = tiny.tree(output), Path.rename, 0

    def failing(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    with monkeypatch.context() as patch, pytest.raises(TrbError), staging.staging(output) as place:
        for path in stage.iterdir():
            path.rename(place / path.name)
        patch.setattr(Path, "rename", failing)
        swap.swap(place, output, NAMES)
    assert recovery.recover(output) == (UNDONE,)
    assert tiny.tree(output) == before


# --- a build after one that was killed ---------------------------------------------------------------

BUILDS = """
import os, shutil, signal, sys
from pathlib import Path
import tiny
from triton_repo_builder.produce.write import publish
from triton_repo_builder.repository.journal import record

model, base, places = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
rename, end = Path.rename, record.end
for step in range(1, 10):
    shutil.copytree(base, places / str(step))
    output = places / str(step) / "repo"
    publication = publish.prepare(tiny.make(model, output, instances=3), output)
    calls = 0

    def killed(act, *arguments):
        global calls
        calls += 1
        if calls == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(*arguments)

    if not (child := os.fork()):
        Path.rename = lambda self, target: killed(rename, self, target)
        record.end = lambda stage: killed(end, stage)
        publish.publish(publication)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, step
"""


def trb(*argv: object) -> Result:
    return CliRunner().invoke(group, [str(part) for part in argv], standalone_mode=False)


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Path]:
    """``base/repo``, and copies of it in which a build was killed at the rename of their name."""
    tiny.embedder(tmp_path / "embedder")
    base = tmp_path / "base"
    tiny.put(tmp_path / "embedder", base / "repo")
    (base / "repo" / "embedder_model" / "MY_NOTES.md").write_text("mine")
    argv = [sys.executable, "-c", BUILDS, *map(str, (tmp_path / "embedder", base, tmp_path / "places"))]
    (tmp_path / "places").mkdir()
    paths = os.pathsep.join([str(Path(tiny.__file__).parent), *sys.path])
    subprocess.run(argv, check=True, env={**os.environ, "PYTHONPATH": paths})
    yield tmp_path


def test_the_next_build_is_as_if_nothing_had_happened(killed: Path) -> None:
    argv = ["build", "--no-golden", "--model", killed / "embedder", "--instances", 2, "--output"]
    assert trb(*argv, killed / "base" / "repo").exception is None
    wanted = tiny.tree(killed / "base" / "repo")
    assert "embedder_model/MY_NOTES.md" in wanted
    for place in sorted((killed / "places").iterdir()):
        diff = trb(*argv, place / "repo", "--diff")
        done = trb(*argv, place / "repo")
        assert done.exception is None, (place.name, done.exception)
        half = 1 < int(place.name) < 9  # three models and the manifest, each moved out and in; then the end
        assert ("half replaced; nothing was read" in str(diff.exception)) == half
        assert (UNDONE in done.stderr) == half
        assert (FINISHED in done.stderr) == (place.name == "9")
        assert tiny.tree(place) == {"repo": "", **{f"repo/{path}": digest for path, digest in wanted.items()}}


def test_so_it_is_for_the_commands_beside_it(killed: Path) -> None:
    place = killed / "places" / "3" / "repo"
    assert UNDONE in trb("remove", "embedder", "--output", place).stderr
    place = killed / "places" / "4" / "repo"
    (killed / "all").mkdir()
    (killed / "embedder").rename(killed / "all" / "embedder")
    done = trb("build", "--no-golden", "--all", killed / "all", "--output", place)
    assert (done.exception, UNDONE in done.stderr) == (None, True)
    place = killed / "places" / "5" / "repo"
    (place / "embedder_model" / "MY_NOTES.md").write_text("mine, and newer")
    done = trb("build", "--no-golden", "--model", killed / "all" / "embedder", "--output", place)
    assert isinstance(done.exception, TrbError)
    assert "embedder" in done.exception.message
    assert "/.old: move back what you need" in done.exception.remedy
