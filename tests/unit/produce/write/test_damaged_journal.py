"""A journal says what is renamed: a damaged one moves nothing, and nothing outside the repository."""

from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.journal import recovery, seal, staging, swap

SWAP = {"created": False, "names": ["a"], "replaced": ["a"], "fresh": {}}


def stage(folder: Path, name: str, document: Any) -> Path:
    """A repository, a neighbour that is not part of it, and what a killed trb left beside them."""
    (folder / "repo" / "a").mkdir(parents=True)
    (folder / "victim").write_text("precious")
    stage = folder / ".repo.trb-1"
    (stage / staging.OLD).mkdir(parents=True)
    seal.mark(stage)
    seal.write(stage, name, document)
    return folder / "repo"


@pytest.mark.parametrize("name", ["../victim", "/victim", "a/../../victim", "..", ""])
@pytest.mark.parametrize("journal", ["swap", "undo"])
def test_a_name_that_leads_out_is_refused(journal: str, name: str, tmp_path: Path) -> None:
    if journal == "swap":
        repository = stage(tmp_path, swap.JOURNAL, {**SWAP, "names": [name], "fresh": {name: []}})
    else:
        repository = stage(tmp_path, staging.UNDO, {name: [""]})
    with pytest.raises(TrbError) as caught:
        recovery.recover(repository)
    assert caught.value.code is Code.DIGEST_MISMATCH
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize("document", ["", [], 5, {"names": 5}, {**SWAP, "fresh": 1}, {**SWAP, "names": [1]}])
def test_a_damaged_journal_is_one_error(document: Any, tmp_path: Path) -> None:
    repository = stage(tmp_path, swap.JOURNAL, document)
    with pytest.raises(TrbError) as caught:
        recovery.recover(repository)
    assert caught.value.code is Code.REPOSITORY_UNREADABLE
    assert (repository / "a").is_dir()


@pytest.mark.parametrize("document", ["", [], {"a": 5}, {"a": []}])
def test_a_damaged_undo_log_is_one_error(document: Any, tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        recovery.recover(stage(tmp_path, staging.UNDO, document))
    assert caught.value.code is Code.REPOSITORY_UNREADABLE
