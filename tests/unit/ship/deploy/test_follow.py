"""What a follower takes up, what it refuses once, and how it waits for a store that fails."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.serve_repository import until
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run import smoke
from triton_repo_builder.run.client import RequestFailed
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.deploy import apply, follow
from triton_repo_builder.ship.deploy.drift import Action, Drift
from triton_repo_builder.ship.deploy.newest import Newest
from triton_repo_builder.ship.stores.location import Bucket
from triton_repo_builder.ship.stores.signing_keys import Trust

URLS = smoke.Urls(http="http://127.0.0.1:1", grpc="127.0.0.1:2")


@dataclass
class World:
    """A pointer, whether the store answers, and whether what is there passes."""

    current: str = "aa"
    failure: TrbError | None = None
    bad: frozenset[str] = frozenset()
    applied: tuple[str, ...] = ()
    broken: Exception | None = None
    """Why nothing can be applied now."""
    passing: TrbError | None = None
    """Why one endpoint cannot be applied now."""

    def pinned(self, location: Any, trust: Any) -> Bucket:
        if self.failure:
            raise self.failure
        return Bucket(scheme="s3", bucket="models", revision=self.current)

    def pull(self, target: Path, progress: Any) -> None:
        (target / "revision").write_text(self.current)

    def run(self, revision: Path, *rest: object) -> apply.Applied:
        name = (revision / "revision").read_text()
        self.applied += (name,)
        if self.broken:
            raise self.broken.with_traceback(None)
        error = self.passing or (TrbError(Code.APPLY_FAILED, "wrong answers") if name in self.bad else None)
        other = Action.NOTHING if name in self.applied[:-1] else Action.LOAD
        outcomes = (
            apply.Outcome(drift=Drift(endpoint="a", action=Action.LOAD), error=error),
            apply.Outcome(drift=Drift(endpoint="b", action=other)),
        )
        return apply.Applied(folder="x", outcomes=outcomes)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(stores, "pinned", made.pinned)
    monkeypatch.setattr(stores, "store", lambda location: made)
    monkeypatch.setattr(apply, "run", made.run)
    return made


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def follower(world: World, told: list[str], tmp_path: Path) -> follow.Follower:
    return follow.Follower(
        Bucket(scheme="s3", bucket="models"),
        tmp_path,
        URLS,
        revision="aa",
        interval=1.0,
        trust=None,
        tell=told.append,
    )


def test_a_revision_is_taken_up_once(follower: follow.Follower, world: World, told: list[str]) -> None:
    assert follower.look()
    assert told == []
    world.current = "bb"
    assert follower.look()
    assert follower.look()
    assert world.applied == ("bb",)
    assert told[-1] == "serves sha256:bb, proven by trb smoke"


def test_what_fails_is_refused_once_until_the_pointer_moves(
    follower: follow.Follower, world: World, told: list[str]
) -> None:
    world.current, world.bad = "bb", frozenset({"bb"})
    assert follower.look()
    assert "still serves sha256:aa" in told[-1]
    said = len(told)
    assert follower.look()
    assert (world.applied, len(told)) == (("bb",), said)
    world.current = "cc"
    assert follower.look()
    assert world.applied == ("bb", "cc")


def test_a_store_that_fails_is_told_once_and_asked_again(
    follower: follow.Follower, world: World, told: list[str]
) -> None:
    world.failure = TrbError(Code.STORAGE_UNREACHABLE, "does not answer")
    assert not follower.look()
    assert not follower.look()
    assert len(told) == 1
    world.failure, world.current = None, "bb"
    assert follower.look()
    assert world.applied == ("bb",)


def test_an_unsigned_revision_is_no_reason_to_wait_longer(
    follower: follow.Follower, world: World, told: list[str]
) -> None:
    world.failure = TrbError(Code.BAD_SIGNATURE, "is not signed")
    assert follower.look()
    assert follower.look()
    assert len(told) == 1
    assert world.applied == ()


@pytest.mark.parametrize(
    "failure",
    [
        TrbError(Code.REPOSITORY_BUSY, "another trb is changing this folder now"),
        TrbError(Code.DISK_FULL, "the disk is full"),
        TrbError(Code.UNREACHABLE, "does not answer"),
        RequestFailed("refused", "500", "out of order"),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_failure_of_this_machine_is_no_verdict_on_the_revision(
    follower: follow.Follower, world: World, told: list[str], failure: Exception, whole: bool
) -> None:
    world.current = "bb"
    if whole:
        world.broken = failure
    else:
        world.passing = failure if isinstance(failure, TrbError) else TrbError(Code.DISK_FULL, "full")
    assert not follower.look()
    assert not follower.look()
    assert sum("still serves sha256:aa" in line for line in told) == 1
    assert sum("is now sha256:bb" in line for line in told) == 1
    world.broken = world.passing = None
    assert follower.look()
    assert world.applied == ("bb", "bb", "bb")
    assert told[-1] == "serves sha256:bb, proven by trb smoke"


def test_what_of_a_refused_revision_was_taken_up_is_said(
    follower: follow.Follower, world: World, told: list[str]
) -> None:
    world.current, world.bad = "bb", frozenset({"bb"})
    assert follower.look()
    assert told[-1].endswith("still serves sha256:aa, and of sha256:bb b")


def test_a_refusal_names_the_revision_and_what_to_push(
    follower: follow.Follower, world: World, told: list[str], tmp_path: Path
) -> None:
    world.current, world.bad = "bb", frozenset({"bb"})
    assert follower.look()
    assert told[-1].startswith("s3://models@sha256:bb: 1 endpoint of 2 could not be applied: a")
    assert str(tmp_path) not in told[-1]
    assert "push a revision that is correct" in told[-1]
    assert "apply again" not in told[-1]


def test_a_bug_does_not_end_the_following(world: World, told: list[str], tmp_path: Path) -> None:
    world.current, world.broken = "bb", KeyError("of trb's own")
    location = Bucket(scheme="s3", bucket="models")
    thread = follow.Follower(
        location, tmp_path, URLS, revision="aa", interval=0.01, trust=None, tell=told.append
    )
    thread.start()
    until(lambda: len(told) > 1)
    assert "KeyError" in told[-1]
    assert "This is a bug in trb" in told[-1]
    world.broken = None
    until(lambda: told[-1] == "serves sha256:bb, proven by trb smoke")
    thread.interrupt()
    thread.join(60)
    assert sum("KeyError" in line for line in told) == 1


def test_an_older_revision_is_told_and_not_served(
    world: World, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(
        stores, "counter", lambda location, trust: {"aa": 2, "bb": 1, "cc": 3}[location.revision]
    )
    location, trust = Bucket(scheme="s3", bucket="models"), Trust(keys=(), file="x")
    newest = Newest(location, trust)
    newest.check(Bucket(scheme="s3", bucket="models", revision="aa"))
    follower = follow.Follower(
        location, tmp_path, URLS, revision="aa", interval=1.0, trust=trust, newest=newest, tell=told.append
    )
    world.current = "bb"
    assert follower.look()
    assert follower.look()
    assert world.applied == ()
    assert sum("signed before" in line and "still serves sha256:aa" in line for line in told) == 1
    world.current = "cc"
    assert follower.look()
    assert world.applied == ("cc",)
