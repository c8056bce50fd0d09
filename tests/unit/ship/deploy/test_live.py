"""The stages of a promotion, and how they are written into the repository, without a server."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import tiny

from triton_repo_builder.produce.write import publish, versions
from triton_repo_builder.ship.deploy import live, promote
from triton_repo_builder.ship.deploy.promote import Move

NAME, MODEL, TOKENIZER = "sentiment", "sentiment_model", "sentiment_tokenizer"


@pytest.fixture
def move(tmp_path: Path) -> Move:
    """From version 1 to version 2 of a classifier."""
    root = tmp_path / "repo"
    for version, labels in ((1, "first"), (2, "second")):
        tiny.classifier(tmp_path / labels)
        build = tiny.make(tmp_path / labels, root, name=NAME, version=version)
        publish.publish(publish.prepare(versions.place(build, root, serve=False), root))
    planned = promote.plan(root, NAME, 2)
    assert planned is not None
    return planned


def test_the_stages(move: Move) -> None:
    listed = live.stages(move)
    assert [stage.about for stage in listed] == [
        "as before",
        f"{NAME}: steps pinned to version 1",
        *(f"{step}: versions 1 and 2" for step in move.steps),
        f"{NAME}: version 2",
        "version 1 is unloaded",
    ]
    assert [stage.proven for stage in listed] == [False] * 4 + [True, False]
    assert listed[2].expected == {move.steps[0]: (1, 2)}
    assert (listed[-1].loads, listed[-1].expected) == (move.steps, dict.fromkeys(move.steps, (2,)))


def test_each_stage_is_written_and_the_way_back_leads_to_the_same_files(move: Move) -> None:
    before = tiny.tree(move.root)
    folder, listed = live._InPlace(move), live.stages(move)
    walked = [*listed, *reversed(listed)]
    for first, second in itertools.pairwise(walked):
        folder.put(first, second)
        for path, piece in second.state.items():
            assert (move.root / path).read_bytes() == piece.bytes
        if second is listed[-1]:
            after = tiny.tree(move.root)
    assert tiny.tree(move.root) == before
    promote.in_repository(move)
    assert tiny.tree(move.root) == after


def test_the_journal_has_all_that_a_promotion_may_write(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a killed one could not be undone: its files would be taken for somebody's edit."""
    listed: dict[str, Collection[bytes | None]] = {}

    @contextlib.contextmanager
    def undoable(root: Path, contents: Mapping[str, Collection[bytes | None]]) -> Iterator[Any]:
        listed.update(contents)
        yield None

    monkeypatch.setattr(promote.undo, "undoable", undoable)
    with promote.undoable(move, *live._stand_in_configs(move).values()):
        pass
    folder, stages = live._InPlace(move), live.stages(move)
    posed = [folder.stand_in(stage, model, 1, 2) for stage in stages for model in move.models]
    assert len([stage for stage in posed if stage]) > len(move.models)
    for stage in (*stages, *filter(None, posed)):
        for path, piece in stage.state.items():
            assert piece.bytes in listed[path], (stage.about, path)
    assert promote.promoted(move).to_text().encode() in listed["manifest.json"]


def test_a_promotion_that_fails_leaves_no_file_of_the_new_version(move: Move) -> None:
    before, listed = tiny.tree(move.root), live.stages(move)
    with pytest.raises(KeyboardInterrupt), promote.undoable(move):
        live._InPlace(move).put(listed[0], listed[-1])
        raise KeyboardInterrupt
    assert tiny.tree(move.root) == before


def test_only_what_is_served_stands_in_for_a_version_that_failed(move: Move) -> None:
    folder, stages = live._InPlace(move), live.stages(move)
    assert folder.stand_in(stages[1], MODEL, 1, 2) is not None
    assert folder.stand_in(stages[-1], MODEL, 1, 2) is None
    assert folder.stand_in(stages[1], MODEL, 1, 3) is None
