"""The gateway as one object: the endpoints, the channel to Triton, and what it lets in."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from triton_repo_builder.run.gateway import map_faults, metrics
from triton_repo_builder.run.gateway.access import Log
from triton_repo_builder.run.gateway.admission import Admission
from triton_repo_builder.run.gateway.api_keys import ApiKeys
from triton_repo_builder.run.gateway.call import Call
from triton_repo_builder.run.gateway.catalogue import Catalogue, Served
from triton_repo_builder.run.gateway.cors import Cors
from triton_repo_builder.run.gateway.discovery import TIMEOUT, Discovery
from triton_repo_builder.run.gateway.options import GatewayOptions
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.run.gateway.shadow import Copy, Shadow
from triton_repo_builder.run.gateway.tracing import Tracer
from triton_repo_builder.run.gateway.triton import PROGRESS, UNDER_WAY, Answer, Columns, Triton

REFRESH = 10.0
"""Seconds between two looks at what the server has loaded."""
LOADING = 600.0
"""Seconds after the start in which a server that is not ready is expected to become so."""
SOME = 5.0
"""Seconds before names that do not exist have the endpoints read again."""
SOON = 1.0
"""Seconds between two looks at files, and at a server that does not answer."""


class Gateway:
    """One process in front of one tritonserver."""

    def __init__(self, triton: Triton, discovery: Discovery, options: GatewayOptions) -> None:
        """Raises ``TrbError`` for a file of API keys that cannot be used."""
        self.triton = triton
        self.discovery = discovery
        self.options = options
        self.catalogue = Catalogue()
        self.shadow = Shadow(options.shadow, triton)
        self.ready = False
        """Whether the server was ready when its endpoints were read: a missing one is not about to come."""
        self.draining = False
        """Whether the gateway is about to stop."""
        self.keys = ApiKeys(options.keys) if options.keys is not None else None
        self.cors = Cors(options.origins)
        self.log = Log(options.log_format)
        trace, rate = options.trace, options.trace_rate
        self.tracer = Tracer(trace, rate, self.log.warning) if trace is not None else None
        self.admission = Admission(options)
        self.started = time.time()
        self._faults: set[str] = set()
        self._stale = asyncio.Event()
        self._last_read = 0.0
        self._stamps: dict[Path, int] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Read the endpoints, and go on doing so."""
        metrics.watch(self.admission)
        self.triton.open()
        await self.refresh()
        self._warn()
        self._tasks = [asyncio.create_task(each) for each in (self._refresh_often(), self._watch_keys())]

    async def stop(self) -> None:
        """Close the channel."""
        for task in self._tasks:
            task.cancel()
        await self.shadow.close()
        await self.triton.close()
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.close)

    async def refresh(self) -> None:
        """Read the endpoints; those of before stay while the server does not answer, or loads them."""
        try:
            # In this order: a server that is ready has loaded what is read then.
            ready = (await self.triton.call("ServerReady", TIMEOUT)).ready
            new = await self.discovery.catalogue(self.triton)
        except Refusal:
            return
        served = self._with_old_tokenizers(new.by_name.values())
        if not ready:
            served = {**self.catalogue.by_name, **served}
        self.catalogue = Catalogue(served.values(), new.routing)
        self.ready, self._last_read = ready, time.time()

    def _with_old_tokenizers(self, endpoints: Iterable[Served]) -> dict[str, Served]:
        """The endpoints with the tokenizers in memory whose files are the same: reading takes long."""
        files = {each.rules.file for each in endpoints if each.rules.file is not None}
        stamps = {file: file.stat().st_mtime_ns for file in files if file.exists()}
        kept = {file for file, stamp in stamps.items() if self._stamps.get(file) == stamp}
        self._stamps = stamps
        served = {}
        for each in endpoints:
            old = self.catalogue.by_name.get(each.name)
            same = old is not None and old.rules == each.rules and each.rules.file in kept
            served[each.name] = replace(each, rules=old.rules) if old is not None and same else each
        return served

    async def _refresh_often(self) -> None:
        while True:
            await asyncio.sleep(SOON)
            with suppress(asyncio.TimeoutError):
                # A model that could not be loaded leaves a server without readiness for good.
                soon = not self.ready and time.time() < self.started + LOADING
                await asyncio.wait_for(self._stale.wait(), 0.01 if soon else REFRESH - SOON)
            self._stale.clear()
            try:
                await self.refresh()
                self._warn()
            except Exception:  # a manifest that is being written, say
                self.log.warning(f"the endpoints stay as they were: {traceback.format_exc(limit=1)}")

    def _warn(self) -> None:
        """Say each fault of gateway.toml once, or why the server cannot be reached."""
        if self.ready or (self.catalogue.by_name and time.time() > self.started + LOADING):
            faults = set(map_faults.faults(self.catalogue, self.discovery.map.endpoints))
        else:
            faults = {self.triton.trouble} - {""}
        for fault in sorted(faults - self._faults):
            self.log.warning(fault)
        self._faults = faults

    async def _watch_keys(self) -> None:
        while self.keys is not None:
            await asyncio.sleep(SOON)
            self.keys.refresh(self.log)

    def look_again(self) -> None:
        """Read the server's endpoints soon: one that a client names may have been loaded since."""
        if time.time() > self._last_read + SOME:
            self._stale.set()

    async def infer(
        self, call: Call, served: Served, columns: Columns, outputs: Sequence[str]
    ) -> list[Answer]:
        """``Triton.infer`` for a call, if there is room for it. Raises ``Refusal``."""
        rows = len(next(iter(columns.values())))
        ticket = self.admission.ticket(served.name, rows, call.timeout, UNDER_WAY * served.rows)
        call.rows += rows
        begun = time.perf_counter()
        token = PROGRESS.set(ticket.answered)
        try:
            answers = await self.triton.infer(
                served, columns, outputs, timeout=call.timeout, id=call.id, metadata=call.metadata
            )
        except Refusal as error:
            if error.status in (404, 503):
                self._stale.set()
            if error.status == 504:
                message = f"no answer within {call.timeout:g} s (--deadline): send fewer items in a request"
                raise Refusal(504, message, code=error.code) from None
            if error.status == 404:  # unloaded, or not loaded yet: the client's request is right
                raise Refusal(503, error.message, code="unavailable", retry_after=1) from None
            raise
        finally:
            PROGRESS.reset(token)
            ticket.close()
            seconds = time.perf_counter() - begun
            call.inferred += seconds
        self.shadow.offer(Copy(served, columns, outputs, answers, seconds, call.timeout, len(call.body)))
        return answers
