"""What a follower takes up, what it refuses once, and how it waits for a store that fails."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder import smoke, stores
from triton_repo_builder.deploy import apply, follow
from triton_repo_builder.deploy.drift import Action, Drift
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.stores.location import Bucket

URLS = smoke.Urls(http="http://127.0.0.1:1", grpc="127.0.0.1:2")


@dataclass
class World:
    """A pointer, whether the store answers, and whether what is there passes."""

    current: str = "aa"
    failure: TrbError | None = None
    bad: frozenset[str] = frozenset()
    applied: tuple[str, ...] = ()

    def pinned(self, location: Any, trust: Any) -> Bucket:
        if self.failure:
            raise self.failure
        return Bucket(scheme="s3", bucket="models", revision=self.current)

    def pull(self, target: Path, progress: Any) -> None:
        (target / "revision").write_text(self.current)

    def run(self, revision: Path, *rest: object) -> apply.Applied:
        name = (revision / "revision").read_text()
        self.applied += (name,)
        error = TrbError(Code.APPLY_FAILED, "wrong answers") if name in self.bad else None
        drift = Drift(endpoint="a", action=Action.LOAD)
        return apply.Applied(folder="x", outcomes=(apply.Outcome(drift=drift, error=error),))


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
