"""``trb smoke``: what it says beside its table."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny

from triton_repo_builder import repository
from triton_repo_builder.cli import smoke


def test_a_file_that_was_changed_since_the_build_is_named(
    tmp_path: Path, output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny.embedder(tmp_path / "bert")
    tiny.put(model, output, name="bert")
    smoke._note_changed_files(repository.read(output))
    assert capsys.readouterr().err == ""
    file = output / "bert_tokenizer" / "1" / "tokenizer.json"
    before = (model / "tokenizer.json").read_bytes()
    with file.open("r+b") as served:  # in place: what shared its inode would change with it
        served.write(b" ")
    assert (model / "tokenizer.json").read_bytes() == before
    smoke._note_changed_files(repository.read(output))
    said = capsys.readouterr().err
    assert "bert_tokenizer/1/tokenizer.json was changed (trb check" in said
