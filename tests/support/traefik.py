"""A real Traefik (``.ci/traefik`` puts it into .cache), on a routes file of trb."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import needs
from tests.support.serve_repository import answers, free_port, until
from triton_repo_builder.ship.targets.routes import BUCKETS

UNPACKED = Path(__file__).resolve().parents[2] / ".cache" / "traefik"
STATIC = """
entryPoints:
  http: {{address: "127.0.0.1:{http}"}}
  grpc: {{address: "127.0.0.1:{grpc}"}}
  traefik: {{address: "127.0.0.1:{api}"}}
api: {{insecure: true, dashboard: false}}
ping: {{}}
metrics:
  prometheus: {{buckets: {buckets}, addServicesLabels: true, addEntryPointsLabels: false}}
providers:
  file: {{filename: {file}, watch: true}}
global: {{checkNewVersion: false, sendAnonymousUsage: false}}
log: {{level: INFO}}
"""


@dataclass(frozen=True)
class Traefik:
    """Addresses of a Traefik that runs."""

    http: str
    grpc: str
    """HOST:PORT."""
    api: str

    def service(self, name: str) -> Any:
        """A service, as its API has it."""
        with urllib.request.urlopen(f"{self.api}/api/http/services/{name}@file", timeout=10) as response:
            return json.load(response)

    def weights(self) -> dict[str, int]:
        """Weight of each side for HTTP; empty while there is no such service."""
        try:
            sides = self.service("v2")["weighted"]["services"]
        except urllib.error.HTTPError:
            return {}
        return {side["name"]: side["weight"] for side in sides}


def installed() -> str | None:
    """Path of ``traefik``; None without."""
    return shutil.which("traefik") or shutil.which("traefik", path=str(UNPACKED))


def binary() -> str:
    """Path of ``traefik``."""
    return installed() or needs.unavailable("there is no Traefik: run .ci/traefik")


@contextmanager
def running(folder: Path, file: Path) -> Iterator[Traefik]:
    """Traefik, which reads ``file``; ended with SIGTERM."""
    http, grpc, api = free_port(), free_port(), free_port()
    static, log = folder / "traefik.yml", folder / "traefik.log"
    static.write_text(STATIC.format(http=http, grpc=grpc, api=api, file=file, buckets=list(BUCKETS)))
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [binary(), f"--configFile={static}"],
            stdout=sink,
            stderr=sink,
            env={**os.environ, "GOMAXPROCS": "1"},
        )
    try:
        running = Traefik(f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc}", f"http://127.0.0.1:{api}")
        until(lambda: process.poll() is not None or answers(f"{running.api}/ping"))
        assert process.poll() is None, log.read_text()
        # It answers before it has read its file: 404 to everything.
        until(lambda: process.poll() is not None or answers(f"{running.api}/api/http/services/v2@file"))
        yield running
    finally:
        process.terminate()
        process.wait(60)
