"""One pair of servers behind one Traefik, which all tests of this folder share and leave as they found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import canaries, serve_repository
from tests.support.canaries import Stage
from triton_repo_builder.base import files
from triton_repo_builder.ship.canary.state import StateFiles


@pytest.fixture(scope="session")
def _stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with canaries.stage(tmp_path_factory.mktemp("canary")) as everything:
        yield everything


@pytest.fixture
def stage(_stage: Stage) -> Iterator[Stage]:
    """All traffic at the stable server, no state, a good canary."""
    _stage.behaviour.write_text(canaries.GOOD)
    yield _stage
    StateFiles(routes=_stage.file).forget()
    if _stage.file.read_text() != _stage.exported:
        # Not write_text: Traefik would read the empty file in between, and answer 404.
        files.write(_stage.file, _stage.exported.encode())
    serve_repository.until(lambda: _stage.traefik.weights() == {"stable": 100})
