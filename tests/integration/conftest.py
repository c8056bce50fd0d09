"""Modules that only ask endpoints: each makes a ``repository``, and the shared server loads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.zoo import Zoo
from triton_repo_builder.run import serve
from triton_repo_builder.run.client.grpc import GrpcClient


@pytest.fixture(scope="module")
def server(zoo: Zoo, repository: Path) -> Iterator[serve.RunningServer]:
    with zoo.serving(repository) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: serve.RunningServer) -> Iterator[GrpcClient]:
    made = GrpcClient(server.urls.grpc, 60)
    yield made
    made.close()
