"""Labels of an image with a repository."""

from __future__ import annotations

from pathlib import Path

from tests.support import serve_repository as made
from triton_repo_builder.ship.container_image.build import REVISION, _labels
from triton_repo_builder.ship.container_image.context import ImageRequest
from triton_repo_builder.ship.stores import revision


def test_an_image_states_the_revision_that_deploy_toml_has(tmp_path: Path) -> None:
    root = made.whole(tmp_path / "repository")
    labels = _labels(ImageRequest(tag="a:1", repository=root))
    assert labels["io.github.triton-repo-builder.revision"] == f"sha256:{revision.collect(root).index.digest}"
    assert REVISION not in _labels(ImageRequest(tag="a:1"))
