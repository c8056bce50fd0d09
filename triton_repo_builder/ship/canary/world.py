"""The servers and the Traefik of a canary, as the engine sees them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from triton_repo_builder.base.text import some
from triton_repo_builder.run.client import HttpClient, NoAnswer, RequestFailed, Urls, statistics
from triton_repo_builder.run.observe import exposition
from triton_repo_builder.run.observe.exposition import Page
from triton_repo_builder.ship.canary import sample
from triton_repo_builder.ship.canary.golden import Golden, GoldenResults
from triton_repo_builder.ship.canary.sample import Reading, Traffic
from triton_repo_builder.ship.canary.state import State, StateFiles
from triton_repo_builder.ship.canary.traefik import Traefik
from triton_repo_builder.ship.targets.routes import CANARY, STABLE, Routes

TIMEOUT = 5.0
"""Seconds for a metrics page and for a look whether a server is ready."""


@dataclass(frozen=True, kw_only=True)
class Servers:
    """Both servers as trb reaches them, and the gateway whose shadow is the canary."""

    stable: Urls
    canary: Urls
    gateway: str = ""
    """Empty: none."""


class LiveWorld:
    """The servers and Traefik that run; ``engine.World`` says what each method does."""

    def __init__(
        self,
        servers: Servers,
        traefik: Traefik,
        routes: Routes,
        files: StateFiles,
        golden: Golden,
        endpoints: Mapping[str, bool],
        ready_path: str,
    ) -> None:
        self._servers, self._traefik, self._routes, self._files = servers, traefik, routes, files
        self._golden, self._endpoints, self._ready_path = golden, endpoints, ready_path
        self._clients = {
            STABLE: HttpClient(servers.stable.http, TIMEOUT),
            CANARY: HttpClient(servers.canary.http, TIMEOUT),
        }

    def now(self) -> float:
        return time.monotonic()

    def clock(self) -> float:
        return time.time()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def split(self, weight: int) -> None:
        self._traefik.write(split(self._routes, weight))

    def read(self) -> Reading:
        return Reading(
            traefik=self._traefik.page(),
            stable=metrics(self._servers.stable.metrics),
            canary=metrics(self._servers.canary.metrics),
            gateway=metrics(f"{self._servers.gateway}/metrics") if self._servers.gateway else Page(),
        )

    def traffic(self, before: Reading, after: Reading, golden: GoldenResults) -> Traffic:
        failures = {STABLE: golden.stable.failures, CANARY: golden.canary.failures}
        return sample.between(before, after, endpoints=self._endpoints, direct_failures=failures)

    def ready(self, side: str) -> bool:
        try:
            return self._clients[side].send("GET", self._ready_path).status == 200
        except NoAnswer:
            return False

    def unreached(self) -> str:
        try:
            down = self._traefik.down(STABLE) if self._routes.http else self._traefik.down(f"{STABLE}-grpc")
        except RequestFailed:
            return ""
        return some(down) if down else ""

    def compare(self) -> GoldenResults:
        return self._golden.round()

    def ask(self, most: int, seconds: float) -> GoldenResults:
        return self._golden.some(most, seconds)

    def save(self, state: State) -> None:
        self._files.save(state)

    def asked(self) -> str:
        return self._files.asked()


def split(routes: Routes, weight: int) -> Routes:
    """The routes with this weight; without a canary at 0, so that the file is as it was exported."""
    return replace(routes, weight=weight) if weight else replace(routes, weight=0, canary=())


def metrics(url: str) -> Page:
    """A metrics page. Raises ``NoAnswer``."""
    text, reason = statistics.read_metrics(url, TIMEOUT)
    if reason:
        raise NoAnswer(f"{url}: {reason}")
    return Page(exposition.read(text))
