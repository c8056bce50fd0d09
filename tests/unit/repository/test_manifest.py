"""A manifest says what commands remove and write: nothing in it may lead out of the repository."""

import json
from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import manifest

DOCUMENT = Path(__file__).parents[3] / "model_repository" / "manifest.json"


def read(folder: Path, change: Any) -> manifest.Manifest | None:
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    change(document, document["endpoints"]["sentiment"])
    (folder / "manifest.json").write_text(json.dumps(document), encoding="utf-8")
    return manifest.read(folder)


OUTSIDE = {
    "file": lambda document, entry: document["files"].update({"../x": {"sha256": "a", "bytes": 1}}),
    "absolute": lambda document, entry: document["files"].update({"/etc/x": {"sha256": "a", "bytes": 1}}),
    "model": lambda document, entry: entry.update(models=["sentiment", "../victim"]),
    "shared": lambda document, entry: entry.update(shared=["/victim"]),
    "cases": lambda document, entry: entry.update(cases="../../smoke.json"),
    "version": lambda document, entry: entry.update(versions={"2": {**entry, "models": ["a/../.."]}}),
}


@pytest.mark.parametrize("change", OUTSIDE.values(), ids=OUTSIDE)
def test_a_path_that_leads_out_is_refused(change: Any, tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        read(tmp_path, change)
    assert caught.value.code is Code.DIGEST_MISMATCH


DAMAGED = {
    "model in a folder": lambda document, entry: entry.update(models=["a/b"]),
    "cases without a folder": lambda document, entry: entry.update(cases="smoke.json"),
    "cases": lambda document, entry: entry.update(cases=5),
    "options": lambda document, entry: entry.update(options=["a"]),
    "previous": lambda document, entry: entry.update(previous="1"),
    "version": lambda document, entry: entry.update(version=float("inf")),
    "generator": lambda document, entry: document.update(generator=[]),
    "tools": lambda document, entry: entry.update(tools="x"),
    "half of a pair": lambda document, entry: entry.update(task="\ud800"),
}


@pytest.mark.parametrize("change", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_field_is_refused(change: Any, tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        read(tmp_path, change)
    assert caught.value.code is Code.REPOSITORY_UNREADABLE


def test_the_manifest_of_an_example_is_read(tmp_path: Path) -> None:
    document = read(tmp_path, lambda document, entry: None)
    assert document is not None and list(document.endpoints) == ["sentiment"]
