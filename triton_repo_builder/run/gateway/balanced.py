"""Calls to all servers behind a name, such as a headless Service of Kubernetes: each to the least busy one.

Servers behind one address share connections, not calls: with HTTP/2 one connection would keep one server
busy and the others idle. The address is written as gRPC writes it, ``dns:///HOST:PORT``:
https://github.com/grpc/grpc/blob/master/doc/naming.md
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterable

from triton_repo_builder.run.gateway.addresses import DNS
from triton_repo_builder.run.gateway.http2 import CONNECT, CallFailed, Channel

EVERY = 2.0
"""Seconds after which the name is looked up again; a server that is drained leaves it 10 s before its end."""

AGAIN = 10.0
"""Seconds after which a server that took no connection is asked as the others are."""


class BalancedChannel:
    """A channel to each address of a name, which is looked up while calls go on."""

    def __init__(self, url: str) -> None:
        self.host, _, port = url.removeprefix(DNS).rpartition(":")
        self.port = int(port)
        self._channels: dict[str, Channel] = {}
        self._calls: Counter[Channel] = Counter()
        """Calls under way, those that wait for a connection included."""
        self._failed: dict[Channel, float] = {}
        """When a server took no connection, by the loop's clock."""
        self._leaving: list[Channel] = []
        """Channels of addresses that left the name, while their calls end."""
        self._lookup: asyncio.Task[None] | None = None
        self._looked = -EVERY

    async def call(
        self, path: str, message: bytes, timeout: float, metadata: Iterable[tuple[str, str]] = ()
    ) -> bytes:
        """The answer's message. Raises ``CallFailed``."""
        await self._look()
        metadata = tuple(metadata)
        failure = CallFailed("UNAVAILABLE", f"no server behind {self.host}:{self.port}")
        for channel in sorted(self._channels.values(), key=self._turn):
            self._calls[channel] += 1
            try:
                # Nothing was sent to a server that takes no connection, so another one may be asked.
                await channel.connect()
            except CallFailed as error:
                failure = error
                self._failed[channel] = asyncio.get_running_loop().time()
            else:
                return await channel.call(path, message, timeout, metadata)
            finally:
                self._calls[channel] -= 1
        raise failure

    def _turn(self, channel: Channel) -> tuple[bool, int]:
        """The least busy first; a server that just took no connection last: asking it may cost seconds."""
        failed = self._failed.get(channel, -AGAIN)
        return asyncio.get_running_loop().time() - failed < AGAIN, self._calls[channel]

    async def close(self) -> None:
        """Close the connections."""
        if self._lookup is not None:
            self._lookup.cancel()
        for channel in (*self._channels.values(), *self._leaving):
            await channel.close()

    async def _look(self) -> None:
        """Look the name up if it was not for a while; only a call without any address waits for that."""
        loop = asyncio.get_running_loop()
        if self._lookup is None and (not self._channels or loop.time() - self._looked >= EVERY):
            self._lookup = loop.create_task(self._refresh())
        if not self._channels and self._lookup is not None:
            await asyncio.shield(self._lookup)

    async def _refresh(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            entries = await asyncio.wait_for(
                loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM), CONNECT
            )
        except (OSError, asyncio.TimeoutError):
            return  # the addresses of before may still answer
        finally:
            self._looked, self._lookup = loop.time(), None
        addresses = {str(entry[4][0]) for entry in entries}
        for address in self._channels.keys() - addresses:
            self._leaving.append(self._channels.pop(address))
        for address in addresses - self._channels.keys():
            host = f"[{address}]" if ":" in address else address
            self._channels[address] = Channel(f"{host}:{self.port}")
        idle = [channel for channel in self._leaving if not self._calls[channel]]
        self._leaving = [channel for channel in self._leaving if self._calls[channel]]
        for channel in idle:
            del self._calls[channel]
            self._failed.pop(channel, None)
            await channel.close()
