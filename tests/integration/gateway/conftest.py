"""One tritonserver with an endpoint of every task and one gateway, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support import gateways
from tests.support.servers import free
from triton_repo_builder.run import serve
from triton_repo_builder.run.client.grpc import GrpcClient


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gateways.repository(tmp_path_factory.mktemp("gateway"))


@pytest.fixture(scope="session")
def server(repository: Path) -> Iterator[serve.RunningServer]:
    """Triton, which the gateway's tests share: leave it running, and its models loaded."""
    with serve.start(repository, free()) as running:
        yield running


@pytest.fixture(scope="session")
def gateway(
    server: serve.RunningServer, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """URL of a gateway with its usual options."""
    tmp = tmp_path_factory.mktemp("gateway_process")
    with gateways.running(tmp, server.urls.grpc, "--repo", str(repository)) as url:
        yield url


@pytest.fixture(scope="session")
def api(gateway: str) -> Iterator[httpx.Client]:
    """HTTP client of the gateway."""
    with httpx.Client(base_url=gateway, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def grpc(server: serve.RunningServer) -> Iterator[GrpcClient]:
    """gRPC client of Triton itself, whose answers the gateway's must equal."""
    client = GrpcClient(server.urls.grpc, 60)
    yield client
    client.close()
