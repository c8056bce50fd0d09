"""Ctrl-C at every line that puts a state into the folder of an apply: the way back finds what is there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import tiny

from triton_repo_builder.produce.write.install import Piece
from triton_repo_builder.repository import Manifest
from triton_repo_builder.repository.journal import recovery
from triton_repo_builder.ship.deploy.engine import Engine, Terms
from triton_repo_builder.ship.deploy.stage import Stage
from triton_repo_builder.ship.deploy.transition import _Swapped

INTERRUPTED = ("engine.py", "transition.py", "install.py", "swap.py", "staging.py", "record.py")
"""Modules in whose lines Ctrl-C comes."""


def stage(about: str, **texts: str) -> Stage:
    files = {path.replace("__", "/"): Piece.of(text.encode()) for path, text in texts.items()}
    return Stage(about=about, state=files, entry=None, expected={})


OLD = stage("old", m__config="a", m__1="one", gone__config="g")
NEW = stage("new", m__config="b", m__1="one", m__2="two", fresh__config="f")


@contextmanager
def interrupted(number: int) -> Iterator[list[int]]:
    """Raise KeyboardInterrupt in line ``number`` of those that run in the modules; yield a count of them."""
    lines = [0]

    def follow(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(INTERRUPTED):
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == number:
                raise KeyboardInterrupt
        return follow

    before = sys.gettrace()
    sys.settrace(follow)
    try:
        yield lines
    finally:
        sys.settrace(before)


def engine(root: Path) -> Engine:
    def manifest_of(name: str, before: Stage, after: Stage) -> Manifest:
        return Manifest(files={path: piece.record for path, piece in after.state.items()})

    transition: Any = SimpleNamespace(root=root, manifest=None, manifest_of=manifest_of)
    terms: Any = Terms
    return Engine(transition, _Swapped(transition, "m", ()), [OLD, NEW], terms, lambda text: None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    put = engine(root)
    put.folder.put(stage("nothing"), OLD)
    return root


def test_the_way_back_is_whole_wherever_ctrl_c_comes(root: Path) -> None:
    before, number, arrived = tiny.tree(root), 0, 0
    while True:
        number += 1
        walked = engine(root)
        with interrupted(number) as lines, suppress(KeyboardInterrupt):
            walked._put(NEW)
        if lines[0] < number:
            break
        arrived += walked.there is NEW
        walked._put(OLD)
        assert recovery.recover(root) == (), number
        assert tiny.tree(root) == before, number
    assert number > 200 and arrived > 20
