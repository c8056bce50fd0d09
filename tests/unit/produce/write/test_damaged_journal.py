"""A journal says what is renamed: a damaged one moves nothing, and nothing outside the repository."""

from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.journal import record, recovery, seal
from triton_repo_builder.repository.journal.record import Kind

ENTRY = {"path": "a", "before": "present", "after": ["0"]}
SWAP = {"kind": "swap", "created": False, "endpoint": "", "entries": [ENTRY]}


def stage(folder: Path, document: Any) -> Path:
    """A repository, a neighbour that is not part of it, and what a killed trb left beside them."""
    (folder / "repo" / "a").mkdir(parents=True)
    (folder / "victim").write_text("precious")
    stage = folder / ".repo.trb-1"
    (stage / record.OLD).mkdir(parents=True)
    seal.mark(stage)
    seal.write(stage, record.NAME, document)
    return folder / "repo"


@pytest.mark.parametrize("name", ["../victim", "/victim", "a/../../victim", "..", ""])
@pytest.mark.parametrize("kind", Kind)
def test_a_name_that_leads_out_is_refused(kind: Kind, name: str, tmp_path: Path) -> None:
    repository = stage(tmp_path, {**SWAP, "kind": kind, "entries": [{**ENTRY, "path": name}]})
    with pytest.raises(TrbError) as caught:
        recovery.recover(repository)
    assert caught.value.code is Code.DIGEST_MISMATCH
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize(("kind", "entries"), [("edit", ["."]), ("apply", ["."]), ("swap", [".", "a"])])
def test_only_a_swap_and_nothing_beside_it_is_of_the_whole_repository(
    kind: str, entries: list[str], tmp_path: Path
) -> None:
    document = {**SWAP, "kind": kind, "entries": [{**ENTRY, "path": path} for path in entries]}
    with pytest.raises(TrbError) as caught:
        recovery.recover(stage(tmp_path, document))
    assert caught.value.code is Code.DIGEST_MISMATCH


@pytest.mark.parametrize(
    "document",
    [
        "",
        [],
        5,
        {"entries": 5},
        {**SWAP, "kind": "other"},
        {**SWAP, "entries": [1]},
        {**SWAP, "entries": [{**ENTRY, "path": 1}]},
        {**SWAP, "entries": [{**ENTRY, "after": 5}]},
        {**SWAP, "kind": "edit", "entries": {"a": 5}},
    ],
)
def test_a_damaged_journal_is_one_error(document: Any, tmp_path: Path) -> None:
    repository = stage(tmp_path, document)
    with pytest.raises(TrbError) as caught:
        recovery.recover(repository)
    assert caught.value.code is Code.REPOSITORY_UNREADABLE
    assert (repository / "a").is_dir()
