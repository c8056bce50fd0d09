"""``make readiness``: how long a server, and an endpoint of it, are not ready while what it serves changes.

    PYTHONPATH=.:tests:tests/support python -m tests.reliability.readiness [--output docs/reliability.md]

Both are probed as Kubernetes does it, every 20 ms, while promotes, rollbacks and applies run: of two versions
whose tokenizers and weights both differ, on an idle server and under load.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import tiny
import two_versions

from tests.reliability.report import commit, section
from tests.support.cli import trb, trb_apart
from tests.support.probe import TICK, TIMEOUT, Probe
from tests.support.servers import free
from triton_repo_builder.run import serve

NAME = "sentiment"
CLIENTS = 6
ROUNDS = 2


@dataclass(frozen=True, kw_only=True)
class Row:
    """One command while a server was probed."""

    command: str
    clients: int
    seconds: float
    endpoint: Probe
    server: Probe


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.readiness", description=__doc__)
    parser.add_argument("--output", type=Path, metavar="FILE", help="Markdown file whose section is replaced")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trb-readiness-") as folder:
        rows = list(run(Path(folder)))
    text = table(rows)
    print(text)
    if arguments.output:
        section(arguments.output, "readiness", text)
    return int(any(row.endpoint.windows for row in rows))


def run(folder: Path) -> Iterator[Row]:
    """Every command, there and back, on an idle server and under load."""
    first, second = two_versions.make(folder / "models")
    for name, model in (("one", first), ("two", second)):
        tiny.put(model, folder / name, golden=True)
    shutil.copytree(folder / "one", folder / "promoted")
    trb("build", "--model", second, "--output", folder / "promoted", "--version", "next")
    shutil.copytree(folder / "one", folder / "applied")
    commands = {
        "promoted": (
            ("promote", ("promote", NAME, str(folder / "promoted"), "--version", "2", "--no-preflight")),
            ("rollback", ("rollback", NAME, str(folder / "promoted"))),
        ),
        "applied": tuple(
            ("apply", ("apply", str(folder / to), "--no-preflight", "--to", str(folder / "applied")))
            for to in ("two", "one")
        ),
    }
    for root, pair in commands.items():
        with serve.start(folder / root, free(), engine="embedded") as server:
            at = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
            for clients in (0, CLIENTS):
                with _asking(server.urls.http, clients):
                    for name, argv in pair * ROUNDS:
                        yield _probed(name, (*argv, *at), server.urls.http, clients)


def _probed(name: str, argv: tuple[str, ...], url: str, clients: int) -> Row:
    begun = time.monotonic()
    with Probe(url, f"/v2/models/{NAME}/ready") as endpoint, Probe(url, "/v2/health/ready") as server:
        trb_apart(*argv)
    return Row(
        command=name,
        clients=clients,
        seconds=time.monotonic() - begun,
        endpoint=endpoint,
        server=server,
    )


@contextmanager
def _asking(url: str, clients: int) -> Iterator[None]:
    """Clients that ask without a pause; a request that fails ends this process."""
    end, failed = threading.Event(), list[Exception]()
    body = {"inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": ["a b c"]}]}

    def ask() -> None:
        request = urllib.request.Request(f"{url}/v2/models/{NAME}/infer", json.dumps(body).encode())
        while not end.is_set():
            try:
                urllib.request.urlopen(request, timeout=60).read()
            except OSError as error:
                failed.append(error)
                return

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join()
    if failed:
        raise SystemExit(f"a request failed: {failed[0]}")


def table(rows: list[Row]) -> str:
    """The section of docs/reliability.md."""
    lines = [
        "| command | clients | times | s each | probes of the endpoint | of them failed | slowest answer, ms "
        "| server not ready, s each | longest in one go, s |",
        "|---|" + "---:|" * 8,
    ]
    for name, clients in dict.fromkeys((row.command, row.clients) for row in rows):
        mine = [row for row in rows if (row.command, row.clients) == (name, clients)]
        numbers = (
            clients,
            len(mine),
            f"{sum(row.seconds for row in mine) / len(mine):.1f}",
            f"{sum(row.endpoint.asked for row in mine):,}",
            sum(row.endpoint.failed for row in mine),
            f"{max(row.endpoint.slowest for row in mine) * 1000:.0f}",
            f"{sum(sum(row.server.windows) for row in mine) / len(mine):.1f}",
            f"{max((window for row in mine for window in row.server.windows), default=0):.1f}",
        )
        lines.append(f"| {name} | " + " | ".join(map(str, numbers)) + " |")
    when = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    said = (
        f"`make readiness` at commit {commit()}, {when}: a probe every {TICK * 1000:.0f} ms, each over a new "
        f"connection, failed if there is no 200 within {TIMEOUT:.0f} s."
    )
    return "\n".join([said, "", *lines])


if __name__ == "__main__":
    sys.exit(main())
