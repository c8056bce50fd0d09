"""Promote and roll back on a tritonserver in a container, which has the repository as a read-only mount."""

from __future__ import annotations

from pathlib import Path

import pytest
import two_versions

from tests.integration.test_promote import Load, golden, only, served
from tests.support.cli import trb_apart as trb
from tests.support.servers import free
from triton_repo_builder.run import serve
from triton_repo_builder.run.options import ContainerOptions

pytestmark = pytest.mark.docker


@pytest.mark.timeout(600)
def test_no_request_is_lost_in_a_container(tmp_path: Path, slim: str) -> None:
    one, two = two_versions.make(tmp_path)
    repo = tmp_path / "model_repository"
    trb("build", "--model", str(one), "--output", str(repo))
    trb("build", "--model", str(two), "--output", str(repo), "--version", "next")
    container = ContainerOptions(image=slim, pull="never")
    options = free(container=container)
    with serve.start(repo, options, engine="docker") as server:
        url = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
        with Load(server.urls.http, golden(repo, 1), golden(repo, 2)) as load:
            trb("promote", "sentiment", str(repo), "--version", "2", *url)
            assert served(server) == only("2")
            trb("rollback", "sentiment", str(repo), *url)
        assert served(server) == only("1")
        assert load.failures == []
        assert load.seen["neither"] == 0
        assert min(load.seen["1"], load.seen["2"]) > 20, load.seen
