"""One name, several servers: calls are spread, servers come and go."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.run.gateway.test_http2 import ECHO, served
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.run.gateway import addresses, balanced
from triton_repo_builder.run.gateway.balanced import BalancedChannel
from triton_repo_builder.run.gateway.http2 import CallFailed, Channel


class Names:
    """Addresses of a name, all on loopback: ``127.0.0.1`` and its neighbours are this machine on Linux."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
        self.hosts = hosts
        monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", self._look)
        monkeypatch.setattr(balanced, "EVERY", 0.0)

    async def _look(self, host: str, port: int, **_: Any) -> list[Any]:
        if host.startswith("127."):
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]
        if not self.hosts:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in self.hosts]


def ask(port: int, work: Callable[[BalancedChannel], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        channel = BalancedChannel(f"dns:///servers:{port}")
        try:
            return await work(channel)
        finally:
            await channel.close()

    return asyncio.run(main())


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_calls_go_to_the_least_busy_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two servers each has half of the calls under way."""
    names = Names(monkeypatch, "127.0.0.1", "127.0.0.2")

    async def work(channel: BalancedChannel) -> list[int]:
        await channel.call(ECHO, b"x", 30)
        calls = [asyncio.ensure_future(channel.call(ECHO, b"sleep 0.5", 30)) for _ in range(8)]
        counts = []
        while not all(call.done() for call in calls):
            counts.append(sorted(channel._calls[each] for each in channel._channels.values()))
            await asyncio.sleep(0.02)
        await asyncio.gather(*calls)
        return max(counts, key=sum)

    with served(host="0.0.0.0") as (url, _):
        assert names.hosts and ask(port_of(url), work) == [4, 4]


def test_servers_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch, "127.0.0.1")

    async def settled(channel: BalancedChannel) -> set[str]:
        for _ in range(3):  # a lookup beside a call counts for the next one
            assert await channel.call(ECHO, b"x", 30) == b"x"
            await asyncio.sleep(0.01)
        return set(channel._channels)

    async def work(channel: BalancedChannel) -> None:
        assert await settled(channel) == {"127.0.0.1"}
        names.hosts = ("127.0.0.1", "127.0.0.2")
        assert await settled(channel) == {"127.0.0.1", "127.0.0.2"}
        late = asyncio.ensure_future(channel.call(ECHO, b"sleep 0.3", 30))
        await asyncio.sleep(0.05)
        names.hosts = ("127.0.0.2",)
        assert await settled(channel) == {"127.0.0.2"}
        assert await late == b"sleep 0.3"  # what is under way at a server that leaves is answered
        names.hosts = ()  # the name server fails: the addresses of before stay
        assert await settled(channel) == {"127.0.0.2"}

    with served(host="0.0.0.0") as (url, _):
        ask(port_of(url), work)


def test_a_server_that_takes_no_connection_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address is listed for a moment longer than it listens."""
    names = Names(monkeypatch, "127.0.0.1", "127.0.0.3")

    async def work(channel: BalancedChannel) -> list[bytes]:
        return [await channel.call(ECHO, b"x", 30) for _ in range(10)]

    with served() as (url, _):  # on 127.0.0.1 only
        assert names.hosts and ask(port_of(url), work) == [b"x"] * 10


@pytest.mark.parametrize("hosts", [(), ("127.0.0.4",)])
def test_no_server_at_all(monkeypatch: pytest.MonkeyPatch, hosts: tuple[str, ...]) -> None:
    Names(monkeypatch, *hosts)
    with served() as (url, _):
        port = port_of(url)
    with pytest.raises(CallFailed) as error:
        ask(port, lambda channel: channel.call(ECHO, b"x", 30))
    assert error.value.status == "UNAVAILABLE" and str(port) in error.value.details


def test_addresses() -> None:
    addresses.check_grpc("--url", "dns:///bert-headless:8001")
    for wrong in ("dns:///bert", "dns://bert:8001", "dns:///grpcs://bert:8001", "grpcs://dns:///bert:8001"):
        with pytest.raises(TrbError):
            addresses.check_grpc("--url", wrong)
    with pytest.raises(TrbError, match="the gateway itself asks"):
        addresses.check_apart("localhost:8001", "dns:///127.0.0.1:8001")


def test_a_plain_address_has_one_server() -> None:
    from triton_repo_builder.run.gateway.triton import Triton

    async def kinds() -> list[type]:
        channels = []
        for url in ("bert:8001", "dns:///bert:8001"):
            triton = Triton(url)
            triton.open()
            channels.append(type(triton.channel))
        return channels

    assert asyncio.run(kinds()) == [Channel, BalancedChannel]
