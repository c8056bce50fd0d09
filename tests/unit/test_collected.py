"""pytest leaves out whole folders by their names, in silence: none of ours."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def test_every_folder_of_tests_is_read(request: pytest.FixtureRequest) -> None:
    patterns = request.config.getini("norecursedirs")
    folders = {part for file in TESTS.rglob("test_*.py") for part in file.relative_to(TESTS).parts[:-1]}
    assert "produce" in folders
    assert [name for name in sorted(folders) if any(fnmatch(name, pattern) for pattern in patterns)] == []
