"""Staging folders in a copy of a folder: the copy has other inodes, so their seals are made anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from triton_repo_builder.repository.journal import record, seal


def reseal(folder: Path, state: Path) -> None:
    """Mark a copied staging folder, and seal its journal, with the key below ``state`` (XDG_STATE_HOME)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state))
        (folder / seal.MARK).unlink(missing_ok=True)
        seal.mark(folder)
        if (folder / record.NAME).is_file():
            seal.write(folder, record.NAME, json.loads(content(folder / record.NAME)))


def content(journal: Path) -> str:
    """The text of a journal, without its seal."""
    text: str = json.loads(journal.read_bytes())["journal"]
    return text
