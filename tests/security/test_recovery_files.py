"""A stranger's recovery files: a clone that brings what a killed trb leaves changes nothing by it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tiny
from cli import call

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.process import run
from triton_repo_builder.repository.journal import record, recovery, seal, staging, swap, undo
from triton_repo_builder.repository.journal.record import Entry, Journal, Kind

NOWHERE = "http://127.0.0.1:9"
READERS: dict[str, tuple[str, ...]] = {
    "check": ("check", "model_repository"),
    "diff": ("diff", "sentiment:1", "sentiment:1"),
    "verify": ("verify", "model_repository", "--url", NOWHERE),
    "client": ("client", "sentiment", "model_repository"),
    "provenance": ("provenance", "model_repository"),
    "inspect": ("inspect", "model/model.onnx"),
}
WRITERS: dict[str, tuple[str, ...]] = {
    "build": ("build", "--model", "model", "--force"),
    "commit": ("commit", "-m", "all"),
    "fetch": ("fetch",),
    "push": ("push", "s3://nowhere/x", "--dry-run"),
    "pull": ("pull", "s3://nowhere/x", "model_repository"),
    "promote": ("promote", "sentiment", "--version", "1"),
    "remove": ("remove", "sentiment"),
    "smoke": ("smoke", "model_repository", "--url", NOWHERE),
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that was built, in a folder that becomes a clone."""
    folder = tmp_path_factory.mktemp("original")
    tiny.classifier(folder / "model")
    assert call("build", "--model", "model", "--name", "sentiment", cwd=folder).returncode == 0
    return folder


@pytest.fixture
def clone(original: Path, tmp_path: Path) -> Path:
    """The author's clone, with a link in the repository that leads to a victim beside it."""
    author, target = tmp_path / "author", tmp_path / "work" / "clone"
    shutil.copytree(original, author)
    (author / "model_repository" / "out").symlink_to("../../../victim")
    for name in ("undo", "swap", "moved"):
        plant(author, name)
    for arguments in (("init", "-q"), ("add", "-A", "-f"), ("commit", "-q", "-m", "planted")):
        run(["git", *arguments], cwd=author)
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "keys").write_text("mine")
    run(["git", "clone", "-q", str(author), str(target)])
    return target


def plant(author: Path, kind: str) -> None:
    """A staging folder with a journal, sealed by the author's own key."""
    stage = author / f".model_repository.trb-{kind}"
    stage.mkdir()
    seal.mark(stage)
    entries = {
        "undo": (entry("out/keys", ""), entry("out/authorized_keys", "0" * 64, "")),
        "swap": (entry("out/keys", "present"),),
        "moved": (entry(record.WHOLE, "present", "0" * 64),),
    }
    change = Kind.EDIT if kind == "undo" else Kind.SWAP
    record.begin(stage, Journal(kind=change, entries=entries[kind]))
    for path in ("out/authorized_keys", "out/keys", f"{swap.NEW}/evil"):
        (stage / record.OLD / path).parent.mkdir(parents=True, exist_ok=True)
        (stage / record.OLD / path).write_text("evil")


def entry(path: str, before: str, *after: str) -> Entry:
    return Entry(path=path, before=before, after=after)


@pytest.mark.parametrize("command", [*READERS, *WRITERS])
def test_a_clone_brings_no_recovery(clone: Path, tmp_path: Path, command: str) -> None:
    """Neither with the author's key, nor with the victim's user, whose key is another."""
    planted = {path: tiny.tree(path) for path in sorted(clone.glob(".model_repository.trb-*"))}
    outside = tiny.tree(tmp_path / "victim")
    done = call(*{**READERS, **WRITERS}[command], cwd=clone, env={"XDG_STATE_HOME": str(tmp_path / "state")})
    assert done.returncode != 70, done.stderr
    assert tiny.tree(tmp_path / "victim") == outside
    assert {path: tiny.tree(path) for path in sorted(clone.glob(".model_repository.trb-*"))} == planted
    if command != "inspect":
        assert "not followed" in done.stderr


def test_the_same_user_s_copy_is_not_followed_either(clone: Path) -> None:
    """Author and victim have one key: the seal is of another folder, since no copy has its inode."""
    notes = recovery.not_followed(clone / "model_repository")
    assert len(notes) == 3
    assert recovery.recover(clone / "model_repository") == ()
    assert all("not followed" in note for note in notes)
    assert not (clone.parent.parent / "victim" / "authorized_keys").exists()


@pytest.mark.parametrize("command", READERS)
def test_a_command_that_reads_writes_nothing(original: Path, tmp_path: Path, command: str) -> None:
    """What this user's own killed trb left stays for the next command that writes."""
    folder = tmp_path / "clone"
    shutil.copytree(original, folder)
    root = folder / "model_repository"
    stage = folder / ".model_repository.trb-own"
    (stage / record.OLD).mkdir(parents=True)
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", state["XDG_STATE_HOME"])
        seal.mark(stage)
        entries = (entry("sentiment", "present"), entry("sentiment_model", "present"))
        record.begin(stage, Journal(kind=Kind.SWAP, entries=entries))
    (root / "sentiment").rename(stage / record.OLD / "sentiment")
    before = tiny.tree(folder)
    done = call(*READERS[command], cwd=folder, env=state)
    assert done.returncode != 70, done.stderr
    assert tiny.tree(folder) == before
    if command != "inspect":
        assert "half replaced; nothing was read [repository-unreadable]" in done.stderr
    assert call("fetch", cwd=folder, env=state).returncode in (0, 4)
    assert (root / "sentiment" / "config.pbtxt").is_file()
    assert not stage.exists()


@pytest.mark.parametrize("kind", Kind)
def test_a_journal_that_was_put_into_our_own_folder_is_refused(tmp_path: Path, kind: Kind) -> None:
    """As by a git pull whose author knows the folder's name: the journal has no seal of this user."""
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "out").symlink_to("..")
    stage = tmp_path / ".repo.trb-own"
    (stage / record.OLD).mkdir(parents=True)
    seal.mark(stage)
    record.begin(stage, Journal(kind=kind, entries=(entry("out/victim", "", ""),)))
    forged = {**json.loads((stage / record.NAME).read_bytes()), "seal": "0" * 64}
    (stage / record.NAME).write_text(json.dumps(forged))
    with pytest.raises(TrbError) as caught:
        recovery.recover(tmp_path / "repo")
    assert (caught.value.code, caught.value.where) == (Code.REPOSITORY_UNREADABLE, str(stage))
    assert (tmp_path / "victim").read_text() == "mine"


@pytest.mark.parametrize("change", ["undo", "swap"])
def test_no_change_goes_through_a_link_that_leads_out(tmp_path: Path, change: str) -> None:
    """A model folder of a clone may be a link: what promote, apply and tune write stays inside."""
    root = tmp_path / "repo"
    root.mkdir()
    (tmp_path / "victim").mkdir()
    (root / "sentiment").symlink_to(tmp_path / "victim")
    with pytest.raises(TrbError) as caught:
        if change == "undo":
            with undo.undoable(root, {"sentiment/config.pbtxt": [b"evil"]}):
                raise AssertionError("it must not begin")
        with staging.staging(root) as stage:
            (stage / "sentiment" / "1").mkdir(parents=True)
            swap.swap(stage, root, ("sentiment/1",))
    assert caught.value.code is Code.DIGEST_MISMATCH
    assert list((tmp_path / "victim").iterdir()) == []
