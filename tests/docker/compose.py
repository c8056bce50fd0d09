"""Docker Compose v2, and the project that an export makes of a deploy.toml."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from needs import unavailable

from tests.support.serve_repository import free_port

BINARY = Path(__file__).resolve().parents[2] / ".cache" / "compose" / "docker-compose"
PROJECT = "com.docker.compose.project"


def need() -> None:
    """Skip the test, or in CI fail it, without Compose."""
    if not BINARY.is_file():
        unavailable(f"there is no {BINARY}; .ci/compose puts it there")


@dataclass(frozen=True)
class Project:
    """A folder of 'trb export compose'."""

    folder: Path
    name: str
    environment: Mapping[str, str]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Run docker-compose in the background."""
        return subprocess.Popen(
            [str(BINARY), *arguments],
            cwd=self.folder,
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> str:
        """Run docker-compose to its end; fails the test with its output and the containers' logs."""
        running = self.start(*arguments)
        said, _ = running.communicate(timeout=300)
        assert running.returncode == 0, said + (self.run("logs") if arguments[0] == "up" else "")
        return said

    def containers(self, client: Any, service: str = "") -> list[Any]:
        """The project's containers, running or not, by name."""
        labels = [f"{PROJECT}={self.name}"]
        if service:
            labels.append(f"com.docker.compose.service={service}")
        return sorted(
            client.containers.list(all=True, filters={"label": labels}), key=lambda each: str(each.name)
        )

    def addresses(self, client: Any, service: str) -> list[str]:
        """IP addresses of a service's containers."""
        return [
            network["IPAddress"]
            for each in self.containers(client, service)
            for network in each.attrs["NetworkSettings"]["Networks"].values()
        ]

    def left(self, client: Any) -> list[str]:
        """Containers, networks and volumes of the project that are there."""
        filters = {"label": f"{PROJECT}={self.name}"}
        volumes = [each.name for each in client.volumes.list(filters=filters)]
        networks = [each.name for each in client.networks.list(filters=filters)]
        return [each.name for each in self.containers(client)] + networks + volumes


def settled(file: Path, keys: Mapping[str, object]) -> dict[str, int]:
    """Set keys of a deploy.toml of ``trb deploy init``, and free ports; returns the ports by their key."""
    text = file.read_text()
    ports = {f"{kind}_port": free_port() for kind in ("http", "grpc", "gateway", "prometheus")}
    for key, value in {**ports, **keys}.items():
        shown = f'"{value}"' if isinstance(value, str) else str(value)
        text, count = re.subn(rf"^(# )?{key} = .*$", f"{key} = {shown}", text, count=1, flags=re.MULTILINE)
        assert count == 1, key
    file.write_text(text)
    return ports
