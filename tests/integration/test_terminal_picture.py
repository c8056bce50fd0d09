"""The recording at the top of README.md is what its commands print, numbers aside."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def recorder() -> ModuleType:
    """docs/images/make_terminal.py."""
    path = ROOT / "docs" / "images" / "make_terminal.py"
    spec = importlib.util.spec_from_file_location("make_terminal", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.server
def test_the_picture_shows_what_the_commands_print(recorder: ModuleType, minilm_int8: Path) -> None:
    shown, printed = (
        recorder.words(recorder.PICTURE.read_text()),
        recorder.words(recorder.record(minilm_int8)),
    )
    assert shown == printed, "make it anew: docs/images/make_terminal.py"
    assert printed["OK"] == 1


def test_the_picture_loads_nothing(recorder: ModuleType) -> None:
    picture = recorder.PICTURE.read_text()
    assert "url(http" not in picture and "href" not in picture


def test_a_changed_output_is_noticed(recorder: ModuleType) -> None:
    picture = recorder.PICTURE.read_text()
    assert recorder.words(picture) == recorder.words(picture.replace(">112<", ">7<"))
    assert recorder.words(picture) != recorder.words(picture.replace("golden", "silver"))
