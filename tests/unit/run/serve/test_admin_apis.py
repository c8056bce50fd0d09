"""On which addresses the administrative APIs need a key."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Repository
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.run.serve import admin_apis
from triton_repo_builder.run.serve.docker import settings
from triton_repo_builder.run.serve.embedded import engine
from triton_repo_builder.run.serve.processes.ports import Ports

KEY = "0123456789abcdef"
LOCAL = ("127.0.0.1", "127.8.0.1", "localhost", "::1")
EVERYWHERE = ("0.0.0.0", "::", "10.0.0.7", "gpu-7", "127.0.0.1.example")


def restricted(**options: object) -> tuple[ServeOptions, list[str]]:
    told: list[str] = []
    return admin_apis.restricted(ServeOptions(**options), told.append), told  # type: ignore[arg-type]


@pytest.mark.parametrize("host", LOCAL)
def test_loopback_stays_as_it_is(host: str) -> None:
    options, told = restricted(host=host)
    assert (admin_apis.arguments(options), told) == ([], [])


@pytest.mark.parametrize("host", EVERYWHERE)
def test_every_other_address_gets_a_random_key_and_a_warning(host: str) -> None:
    options, told = restricted(host=host)
    other, _ = restricted(host=host)
    assert len(options.admin_key) >= 32
    assert options.admin_key != other.admin_key
    assert len(told) == 1 and told[0].startswith("warning: ") and host in told[0]
    assert options.admin_key not in told[0] + repr(options)


@pytest.mark.parametrize("host", [LOCAL[0], EVERYWHERE[0]])
def test_a_key_restricts_on_every_address(host: str) -> None:
    options, _ = restricted(host=host, admin_key=KEY)
    apis = "model-repository,shared-memory,trace,logging"
    assert admin_apis.arguments(options) == [
        f"--http-restricted-api={apis}:admin-key={KEY}",
        f"--grpc-restricted-protocol={apis}:admin-key={KEY}",
    ]


def test_open_on_request_and_not_with_a_key() -> None:
    options, told = restricted(host="0.0.0.0", open_apis=True)
    assert admin_apis.arguments(options) == []
    assert len(told) == 1 and told[0].startswith("warning: ")
    with pytest.raises(TrbError) as error:
        restricted(admin_key=KEY, open_apis=True)
    assert (error.value.code, error.value.where) == (Code.USAGE, "--open-apis")


def test_both_engines_listen_on_loopback_and_restrict_alike() -> None:
    options = ServeOptions(admin_key=KEY)
    at = Ports(http=1, grpc=2, metrics=3)
    embedded = engine.arguments(Path("/bin/t"), "/r", Path("/b"), options, at)
    for kind in ("http", "grpc", "metrics"):
        assert f"--{kind}-address=127.0.0.1" in embedded
    assert {*admin_apis.arguments(options)} < {*embedded}
    assert {*admin_apis.arguments(options)} < {*settings.command(options)}
    repo = Repository(path=Path("/r"), models=(), manifest=None)
    container = settings.arguments(repo, ServeOptions(), [], {}, "1:1", "/r", "name")
    assert {host for host, _ in container["ports"].values()} == {"127.0.0.1"}
    assert len(container["ports"]) == 3
