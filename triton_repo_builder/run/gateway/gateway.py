"""The gateway as one object: the endpoints, the channel to Triton, and what it lets in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from triton_repo_builder.run.gateway.call import Call
from triton_repo_builder.run.gateway.catalogue import Catalogue, Served
from triton_repo_builder.run.gateway.discovery import Discovery
from triton_repo_builder.run.gateway.options import GatewayOptions
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.run.gateway.shadow import Copy, Shadow
from triton_repo_builder.run.gateway.triton import Answer, Columns, Triton

REFRESH = 10.0
"""Seconds between two looks at what the server has loaded."""


class Gateway:
    """One process in front of one tritonserver."""

    def __init__(self, triton: Triton, discovery: Discovery, options: GatewayOptions) -> None:
        self.triton = triton
        self.discovery = discovery
        self.options = options
        self.catalogue = Catalogue()
        self.shadow = Shadow(options.shadow, triton)
        self.started = time.time()
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the endpoints, and go on doing so."""
        self.triton.open()
        await self.refresh()
        self._watch = asyncio.create_task(self._refresh_often())

    async def stop(self) -> None:
        """Close the channel."""
        if self._watch is not None:
            self._watch.cancel()
        await self.shadow.close()
        await self.triton.close()

    async def refresh(self) -> None:
        """Read the endpoints; those of before stay while the server does not answer."""
        with suppress(Refusal):
            self.catalogue = await self.discovery.catalogue(self.triton)

    async def _refresh_often(self) -> None:
        while True:
            await asyncio.sleep(REFRESH if self.catalogue.by_name else 1)
            await self.refresh()

    async def infer(
        self, call: Call, served: Served, columns: Columns, outputs: Sequence[str]
    ) -> list[Answer]:
        """``Triton.infer`` for a call. Raises ``Refusal``."""
        began = time.perf_counter()
        answers = await self.triton.infer(
            served, columns, outputs, timeout=call.timeout, id=call.id, metadata=call.metadata
        )
        seconds = time.perf_counter() - began
        self.shadow.offer(Copy(served, columns, outputs, answers, seconds, call.timeout, len(call.body)))
        return answers
