"""Which signed revisions a follower refuses, also after a new start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.deploy.newest import Newest
from triton_repo_builder.ship.stores.location import Bucket
from triton_repo_builder.ship.stores.signing_keys import Trust

LOCATION = Bucket(scheme="s3", bucket="models")
TRUST = Trust(keys=(), file="release.pub")


@pytest.fixture(autouse=True)
def counters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, int]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    known: dict[str, int] = {}

    def counter(location: Any, trust: Any) -> int:
        return known[location.revision]

    monkeypatch.setattr(stores, "counter", counter)
    return known


def seen(newest: Newest, revision: str) -> Code | None:
    try:
        newest.check(Bucket(scheme="s3", bucket="models", revision=revision))
    except TrbError as error:
        assert (error.where, "--sign" in error.remedy) == ("s3://models", True)
        return error.code
    return None


def test_what_was_signed_before_is_refused(counters: dict[str, int]) -> None:
    counters.update(aa=5, bb=7, cc=6, dd=7, ee=0, ff=8)
    newest = Newest(LOCATION, TRUST)
    assert [seen(newest, each) for each in ("aa", "bb", "bb")] == [None] * 3
    assert {seen(newest, each) for each in ("aa", "cc", "dd", "ee")} == {Code.BAD_SIGNATURE}
    # A new start knows it; the same revision is welcome, a newer one too.
    again = Newest(LOCATION, TRUST)
    assert seen(again, "aa") is Code.BAD_SIGNATURE
    assert seen(again, "bb") is seen(again, "ff") is None
    # Signed again, an older revision is the newest.
    counters["aa"] = 9
    assert seen(again, "aa") is None
    assert seen(again, "ff") is Code.BAD_SIGNATURE
    other = Newest(Bucket(scheme="s3", bucket="others"), TRUST)
    assert other.check(Bucket(scheme="s3", bucket="others", revision="ee")) is None


def test_without_counters_there_is_no_order(counters: dict[str, int]) -> None:
    counters.update(aa=0, bb=0, cc=1)
    newest = Newest(LOCATION, TRUST)
    assert seen(newest, "aa") is None
    assert seen(newest, "bb") is Code.BAD_SIGNATURE
    assert seen(newest, "cc") is None


def test_a_damaged_memory_is_told(counters: dict[str, int], tmp_path: Path) -> None:
    counters.update(aa=1)
    assert seen(Newest(LOCATION, TRUST), "aa") is None
    (file,) = (tmp_path / "trb").glob("newest-*")
    file.write_text("{")
    with pytest.raises(TrbError) as caught:
        Newest(LOCATION, TRUST)
    assert (caught.value.code, caught.value.where) == (Code.BAD_SIGNATURE, str(file))
