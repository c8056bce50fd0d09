"""Which revisions are listed, which go, and what a killed prune leaves, in a bucket in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import keys
from tests.unit.ship.stores.test_bucket import Memory, changed, ignore
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.stores import pointer, registry_tags, retention, signing_keys
from triton_repo_builder.ship.stores.gs import GoogleStore
from triton_repo_builder.ship.stores.location import Bucket
from triton_repo_builder.ship.stores.pointer import Pointer

PLACE = Bucket(scheme="gs", bucket="models", prefix="a")


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def store(memory: Memory) -> GoogleStore:
    return GoogleStore(PLACE, memory)


def push(store: GoogleStore, repository: Path, *names: str) -> list[str]:
    return [store.push(changed(repository, name), ignore).revision for name in names]


def prune(store: GoogleStore, keep: int, **more: Any) -> retention.Pruned:
    return retention.prune(store, PLACE, keep, ignore, **more)


def objects(memory: Memory) -> list[str]:
    return sorted(path.removeprefix("/models/a/") for path in memory.store)


def pullable(store: GoogleStore, memory: Memory, revision: str, target: Path) -> bool:
    target.mkdir()
    place = Bucket(scheme="gs", bucket="models", prefix="a", revision=revision.removeprefix("sha256:"))
    try:
        GoogleStore(place, memory).pull(target, ignore)
    except TrbError as error:
        assert error.code == Code.NOT_PUSHED
        return False
    return True


def test_the_newest_is_first_with_what_refers_to_it(store: GoogleStore, repository: Path) -> None:
    one, two, three = push(store, repository, "1", "2", "3")
    found = store.revisions()
    assert [(stored.revision, stored.holds) for stored in found] == [
        (three, ("current",)),
        (two, ("previous",)),
        (one, ()),
    ]
    assert all(stored.bytes > 1 << 20 and stored.pushed.endswith("Z") for stored in found)
    # Current once more: the newest again.
    (repository.with_name("1")).rename(repository.with_name("old"))
    assert push(store, repository, "1") == [one]
    assert [stored.revision for stored in store.revisions()] == [one, three, two]


@pytest.mark.parametrize("keep", [1, 2, 3, 9])
def test_the_newest_stay_with_the_current_and_the_previous_one(
    keep: int, store: GoogleStore, memory: Memory, repository: Path, tmp_path: Path
) -> None:
    pushed = push(store, repository, "1", "2", "3", "4")
    before = objects(memory)
    told = prune(store, keep, dry_run=True)
    assert objects(memory) == before
    done = prune(store, keep)
    gone = pushed[: max(0, 4 - max(keep, 2))]
    removed = [stored.revision for stored in done.removed]
    assert sorted(removed) == sorted(gone) == sorted(stored.revision for stored in told.removed)
    for number, revision in enumerate(pushed):
        assert pullable(store, memory, revision, tmp_path / f"at{number}") is (revision not in gone)
    assert not any(revision.removeprefix("sha256:") in path for revision in gone for path in objects(memory))
    assert prune(store, keep).removed == ()


def test_an_older_one_that_is_current_again_stays(store: GoogleStore, repository: Path) -> None:
    one, two, three = push(store, repository, "1", "2", "3")
    repository.with_name("1").rename(repository.with_name("old"))
    push(store, repository, "1")
    assert [stored.revision for stored in prune(store, 1).kept] == [one, three]
    assert two not in [stored.revision for stored in store.revisions()]


def test_one_that_becomes_current_meanwhile_stays(
    store: GoogleStore, memory: Memory, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, *_ = push(store, repository, "1", "2", "3")
    listed = GoogleStore.leftovers
    repository.with_name("1").rename(repository.with_name("old"))

    def moves(self: GoogleStore) -> tuple[str, ...]:
        push(GoogleStore(PLACE, memory), repository, "1")
        return listed(self)

    monkeypatch.setattr(GoogleStore, "leftovers", moves)
    assert prune(store, 1).removed == ()
    assert store.revisions()[0].revision == one


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("after", range(1, 8))
def test_a_killed_prune_leaves_nothing_that_looks_whole_and_the_next_one_ends_it(
    after: int,
    store: GoogleStore,
    memory: Memory,
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = keys.pair(tmp_path, "key")
    store.push(changed(repository, "0"), ignore, signer=signing_keys.read_signer(pair.private))
    one = store.revisions()[0].revision
    two, three = push(store, repository, "2", "3")
    digest = one.removeprefix("sha256:")
    remove, left = Memory.rm_file, [after]

    def dies(self: Memory, path: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        remove(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(Memory, "rm_file", dies)
        patch.setattr(Memory, "rm", lambda self, path, recursive: [self.rm_file(p) for p in self.find(path)])
        with pytest.raises(Killed):
            prune(store, 1)
    assert not pullable(store, memory, one, tmp_path / "meanwhile")
    assert [stored.revision for stored in store.revisions()] == [three, two]
    done = prune(store, 1)
    assert (done.removed, done.ended) == ((), (one,))
    assert not any(digest in path and path != "current.json" for path in objects(memory))


def test_a_push_of_what_a_killed_prune_began_to_remove_is_whole_and_stays(
    store: GoogleStore, memory: Memory, repository: Path, tmp_path: Path
) -> None:
    one, *_ = push(store, repository, "1", "2", "3")
    digest = one.removeprefix("sha256:")
    store._write(f"revisions/{digest}.removing", b"x")
    store._remove(f"revisions/{digest}.json")
    repository.with_name("1").rename(repository.with_name("old"))
    push(store, repository, "1")
    assert store.leftovers() == ()
    assert pullable(store, memory, one, tmp_path / "pulled")


def test_a_folder_without_an_index_may_be_a_push_under_way(
    store: GoogleStore, memory: Memory, repository: Path
) -> None:
    push(store, repository, "1", "2")
    memory.pipe_file(f"models/a/revisions/{'e' * 64}/m/config.pbtxt", b"arrives")
    prune(store, 1)
    assert f"revisions/{'e' * 64}/m/config.pbtxt" in objects(memory)


def test_a_damaged_index_is_listed_and_a_pointer_of_an_older_trb_read(
    store: GoogleStore, memory: Memory, repository: Path
) -> None:
    one, two = push(store, repository, "1", "2")
    memory.pipe_file(f"models/a/revisions/{one.removeprefix('sha256:')}.json", b"{}")
    text = f'{{"revision": "{two}", "previous": null}}'
    memory.pipe_file("models/a/current.json", text.encode())
    found = {stored.revision: stored for stored in store.revisions()}
    assert (found[one].bytes, found[one].holds, found[two].holds) == (0, (), ("current",))
    assert found[one].pushed.endswith("Z")


@pytest.mark.parametrize("history", ["7", '[7, {}, {"revision": 7}]', "{}", "null"])
def test_a_history_that_cannot_be_read_is_left_out(history: str) -> None:
    document = f'{{"revision": "sha256:{"a" * 64}", "history": {history}}}'
    found = Pointer.read(document.encode())
    assert found is not None
    assert (found.revision, found.history) == ("a" * 64, ())


def test_the_pointer_remembers_its_moves_up_to_a_limit() -> None:
    now = pointer.first("a" * 64, {})
    for number in range(pointer.LONGEST + 5):
        now = now.moved(f"{number:064x}", {"x": "y"})
    assert Pointer.read(now.document) == Pointer(
        revision=now.revision, previous=now.previous, history=now.history
    )
    assert len(now.history) == pointer.LONGEST


def test_a_push_from_a_machine_whose_clock_is_behind_is_still_the_later_one(
    store: GoogleStore, repository: Path, memory: Memory
) -> None:
    one, two = push(store, repository, "1", "2")
    ahead = Pointer(
        revision=two.removeprefix("sha256:"),
        previous=one.removeprefix("sha256:"),
        history=(
            (one.removeprefix("sha256:"), "2026-01-01T00:00:00.000000Z"),
            (two.removeprefix("sha256:"), "2199-01-01T00:00:00.000000Z"),
        ),
    )
    memory.pipe_file("models/a/current.json", ahead.document)
    three, four = push(store, repository, "3", "4")
    assert [stored.revision for stored in store.revisions()] == [four, three, two, one]
    assert [stored.revision for stored in prune(store, 3).removed] == [one]


def test_an_image_that_becomes_current_later_has_the_later_tag() -> None:
    first, second = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    ahead = f"trb-21990101T000000.000000Z-{'a' * 64}"
    late = registry_tags.moved(second, ["1.0", ahead])
    assert [digest for _, digest in registry_tags.moves([late, ahead])] == [first, second]
    last = f"trb-99991231T235959.999999Z-{'a' * 64}"
    assert registry_tags.ours(registry_tags.moved(second, [last]))  # nothing is later


def test_nothing_pushed_and_an_address_of_one_revision_are_refused(store: GoogleStore) -> None:
    with pytest.raises(TrbError) as caught:
        store.revisions()
    assert caught.value.code == Code.NOT_PUSHED
    pinned = stores.parse(f"gs://models/a@sha256:{'a' * 64}")
    for call in (lambda: stores.revisions(pinned), lambda: stores.prune(pinned, 1, ignore)):
        with pytest.raises(TrbError) as caught:
            call()
        assert caught.value.code == Code.BAD_LOCATION


def test_tags_of_trb_are_told_from_those_of_users() -> None:
    digest = f"sha256:{'a' * 64}"
    move, signed = registry_tags.moved(digest, ()), registry_tags.signature_tag(digest, "b" * 32)
    assert max(len(move), len(signed)) <= 128
    assert registry_tags.ours(move)
    assert registry_tags.ours(signed)
    foreign = ("1.0", "trb-1", f"sha256-{'a' * 64}.sig", f"trb-20261123-{'a' * 64}")
    assert not any(registry_tags.ours(tag) for tag in foreign)
    assert [found for _, found in registry_tags.moves((*foreign, move))] == [digest]
    assert registry_tags.signatures((*foreign, signed)) == [(digest, "b" * 32)]
