"""Traefik: the routes file that it reads, and its API, which says when a new weight is in effect.

API: https://doc.traefik.io/traefik/reference/install-configuration/api-dashboard/
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import DAMAGED
from triton_repo_builder.run.client import HttpClient, NoAnswer, RequestFailed, statistics
from triton_repo_builder.run.observe import exposition
from triton_repo_builder.run.observe.exposition import Page
from triton_repo_builder.ship.targets import routes
from triton_repo_builder.ship.targets.routes import CANARY, SPLIT, STABLE, Routes
from triton_repo_builder.ship.targets.spec import ALL

RELOAD = 20.0
"""Seconds that Traefik may take to read the file: it gathers changes for two."""
TICK = 0.1
"""Seconds between two looks at the API."""
DEFAULT = "http://127.0.0.1:8080"
"""Traefik's own address of its API and metrics."""
LARGEST = 1 << 20
"""Bytes of a routes file."""


class Traefik:
    """Traefik at the address of its API and metrics, and its file."""

    def __init__(
        self, url: str, file: Path, *, patience: float = RELOAD, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.url, self.file = url, file
        self._http = HttpClient(url, 5.0)
        self._patience, self._sleep = patience, sleep

    def page(self) -> Page:
        """The metrics. Raises ``RequestFailed``."""
        text, reason = statistics.read_metrics(f"{self._http.url}/metrics", 5.0)
        if reason:
            raise NoAnswer(f"{self.url}/metrics: {reason}")
        return Page(exposition.read(text))

    def check(self) -> None:
        """Raise ``TrbError`` UNREACHABLE unless the API and the metrics are there."""
        try:
            self._http.call("GET", "/api/version")
        except RequestFailed as error:
            raise TrbError(
                Code.UNREACHABLE,
                f"Traefik's API does not answer: {error}",
                where=self.url,
                remedy="name its address with --traefik; Traefik needs 'api: {insecure: true}' on an entry "
                "point that only operators reach",
            ) from None
        try:
            page = self.page()
        except RequestFailed as error:
            problem = str(error)
        else:
            problem = "" if "traefik_config_reloads_total" in page else "the page has no metrics of Traefik"
        if problem:
            raise TrbError(
                Code.UNREACHABLE,
                f"Traefik has no metrics here: {problem}",
                where=self.url,
                remedy="add 'metrics: {prometheus: {addServicesLabels: true}}' to its static configuration",
            )

    def read(self) -> Routes:
        """The file. Raises ``TrbError`` NOT_FOUND, OUTPUT_FOREIGN, EDITED_FILE."""
        return read(self.file)

    def write(self, target: Routes) -> None:
        """Replace the file, and wait until Traefik follows it.

        Raises ``TrbError``: TIMED_OUT, and then the file is as it was before, unless ``target`` sends
        everything to the stable server: going back is tried in any case.
        """
        before = self.put(target)
        try:
            self.follow(target, new=before is None)
        except TrbError:
            if before is not None and target.weight:
                files.write(self.file, before)
            raise

    def put(self, target: Routes) -> bytes | None:
        """Replace the file; its content before, None if there was none. An edited one is kept beside it."""
        before = self.file.read_bytes() if self.file.exists() else None
        content = routes.text(target).encode()
        if content == before:
            return before
        if before is not None:
            try:
                routes.read(before.decode("utf-8", "replace"), "")
            except TrbError:
                files.write(edited(self.file), before)
        files.write(self.file, content)
        return before

    def follow(self, target: Routes, *, new: bool = False) -> None:
        """Wait until Traefik has these weights. Raises ``TrbError`` TIMED_OUT."""
        problem = self._follow(target)
        if not problem:
            return
        remedy = (
            "does it read this file (providers.file.filename, with its folder mounted, not the file "
            "alone), and what does its log say?"
        )
        if new:
            remedy = (
                "the file is new, and a Traefik that started without it does not read it: restart Traefik, "
                "then run the same command again"
            )
        raise TrbError(
            Code.TIMED_OUT,
            f"Traefik did not follow the file within {self._patience:g} s: {problem}",
            where=str(self.file),
            remedy=remedy,
        )

    def _follow(self, target: Routes) -> str:
        """Empty once the API shows these weights; else why not."""
        deadline = time.monotonic() + self._patience
        while True:
            problem = self.differs(target)
            if not problem or time.monotonic() > deadline:
                return problem
            self._sleep(TICK)

    def differs(self, target: Routes) -> str:
        """How Traefik's own state differs from these routes; empty if it does not."""
        kinds = [kind for kind, used in (("", target.http), ("-grpc", target.grpc)) if used]
        for kind in kinds:
            expected = {f"{STABLE}{kind}": ALL - target.weight}
            if target.canary:
                expected[f"{CANARY}{kind}"] = target.weight
            try:
                weights, status = self._weights(f"{SPLIT}{kind}")
                urls = self._urls(f"{CANARY}{kind}") if target.canary else []
            except RequestFailed as error:
                return str(error)
            if status != "enabled":
                return f"its service {SPLIT}{kind}@file is {status or 'not there'}"
            if weights != expected:
                return f"it sends {_shown(weights)}, not {_shown(expected)}"
            wanted_urls = [each.grpc if kind else each.http for each in target.canary]
            if urls != wanted_urls:
                return f"its {CANARY}{kind} service has {', '.join(urls)}"
        return ""

    def _service(self, name: str) -> Any:
        try:
            return self._http.call("GET", f"/api/http/services/{name}@file")
        except NoAnswer:
            raise
        except RequestFailed as error:
            raise RequestFailed(error.kind, "", f"it has no service {name}@file") from None

    def _weights(self, name: str) -> tuple[dict[str, int], str]:
        service = self._service(name)
        try:
            listed = service["weighted"]["services"]
            # Weight 1 is Traefik's default; some releases leave a 0 out.
            weights = {str(each["name"]).removesuffix("@file"): int(each.get("weight", 0)) for each in listed}
            return weights, str(service["status"])
        except DAMAGED:
            return {}, "not weighted"

    def down(self, name: str) -> tuple[str, ...]:
        """Servers of a service, none of which passes Traefik's health check; empty if one does, or none is
        checked. Raises ``RequestFailed``."""
        states = self._service(name).get("serverStatus") or {}
        return tuple(states) if states and all(each == "DOWN" for each in states.values()) else ()

    def _urls(self, name: str) -> list[str]:
        service = self._service(name)
        try:
            return [str(each["url"]) for each in service["loadBalancer"]["servers"]]
        except DAMAGED:
            return []


def edited(file: Path) -> Path:
    """Where ``put`` keeps a file that somebody edited."""
    return file.with_name(f"{file.name}.edited")


def read(file: Path) -> Routes:
    """A routes file. Raises ``TrbError`` NOT_FOUND, OUTPUT_FOREIGN, EDITED_FILE."""
    return routes.read(_content(file), str(file))


def stated(file: Path) -> Routes:
    """The routes that an edited file states. Raises ``TrbError`` NOT_FOUND, EDITED_FILE."""
    return routes.stated(_content(file), str(file))


def _content(file: Path) -> str:
    try:
        return files.read_text(file, limit=LARGEST)
    except OSError as error:
        raise files.unreadable(file, error) from None
    except ValueError:
        return ""


def _shown(weights: dict[str, int]) -> str:
    return ", ".join(f"{name} {weight} %" for name, weight in weights.items()) or "nothing"
