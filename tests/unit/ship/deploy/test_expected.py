"""What a revision says of its endpoints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tiny

from tests.support import serve_repository as made
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import content
from triton_repo_builder.ship.deploy.expected import expected
from triton_repo_builder.ship.deploy.revision import Revision

WEIGHTS = "sentiment_model/1/weights.onnx"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    tiny.put(tiny.classifier(folder / "sentiment"), folder / "model_repository")
    return folder / "model_repository"


def of(path: Path, **more: object) -> Revision:
    return Revision(name="it", path=path, **more)  # type: ignore[arg-type]


def test_of_what_trb_built(built: Path) -> None:
    (endpoint,) = expected(of(built))
    assert list(endpoint.versions) == ["sentiment", "sentiment_tokenizer", "sentiment_model"]
    assert set(endpoint.versions.values()) == {(1,)}
    assert set(endpoint.configs) == set(endpoint.versions)
    assert endpoint.content == content.digest(endpoint.digests)
    assert endpoint.digests[WEIGHTS] == files.hash_file(built / WEIGHTS)
    assert endpoint.altered == ""


def test_a_file_that_was_left_out_is_known_by_its_digest(built: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(built, tmp_path / "copy"))
    (root / WEIGHTS).unlink()
    assert expected(of(root, digests={WEIGHTS: files.hash_file(built / WEIGHTS)})) == expected(of(built))
    # What git LFS or the index of a push says of it is compared with the manifest.
    (endpoint,) = expected(of(root, digests={WEIGHTS: "0" * 64}))
    assert WEIGHTS in endpoint.altered


def test_a_file_that_the_revision_does_not_have_is_missing(built: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(built, tmp_path / "copy"))
    (root / WEIGHTS).unlink()
    (endpoint,) = expected(of(root))
    assert WEIGHTS in endpoint.altered
    # Weights outside git are where their address says, in the digest that the manifest has.
    document = json.loads((root / "manifest.json").read_text())
    document["files"][WEIGHTS]["url"] = "https://example.com/weights"
    (root / "manifest.json").write_text(json.dumps(document))
    (endpoint,) = expected(of(root))
    assert endpoint.altered == ""


@pytest.mark.parametrize("path", [WEIGHTS, "sentiment/config.pbtxt"])
def test_altered_files_are_named(built: Path, tmp_path: Path, path: str) -> None:
    root = Path(shutil.copytree(built, tmp_path / "copy"))
    with (root / path).open("ab") as file:
        file.write(b"\n# another\n")
    (endpoint,) = expected(of(root))
    assert path in endpoint.altered


def test_of_a_repository_made_by_hand(tmp_path: Path) -> None:
    made.python(tmp_path, "step")
    made.ensemble(tmp_path, "whole", "step")
    (tmp_path / "step" / "2").mkdir()
    (tmp_path / "step" / "2" / "model.py").write_text(made.HEALTHY)
    (endpoint,) = expected(of(tmp_path))
    assert endpoint.versions == {"whole": (1,), "step": (2,)}
    assert (endpoint.name, endpoint.content) == ("whole", "")
    assert sorted(endpoint.digests) == [
        "step/2/model.py",
        "step/config.pbtxt",
        "whole/1/.gitkeep",
        "whole/config.pbtxt",
    ]


def test_what_is_not_there(built: Path, tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        expected(of(built), ["sentiment", "other"])
    assert (caught.value.code, caught.value.where) == (Code.NOT_FOUND, "it")
    with pytest.raises(TrbError) as caught:
        expected(of(tmp_path))
    assert caught.value.code == Code.REPOSITORY_UNREADABLE
