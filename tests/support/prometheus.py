"""Debian's Prometheus: on PATH, or unpacked by ``.ci/prometheus``."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.serve_repository import answers, free_port, until

UNPACKED = Path(__file__).resolve().parents[2] / ".cache" / "prometheus" / "usr" / "bin"
SELECTOR = re.compile(r"(?<![\w:.])((?:trb:|trb_|nv_|up\b)[\w:]*(?:\{[^}]*\})?(?:\[\w+\])?)")
"""A selector in PromQL; no label's value in ours holds a brace."""


def binary(name: str) -> str | None:
    """Path of ``prometheus`` or ``promtool``."""
    return shutil.which(name) or shutil.which(name, path=str(UNPACKED))


def promtool(*arguments: str | Path) -> str:
    """Output of promtool; fails the test with it."""
    argv = [binary("promtool") or "promtool", *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that runs."""

    url: str

    def get(self, path: str, **parameters: object) -> Any:
        """``data`` of an answer of its API."""
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=60) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """Series with a value that is a number."""
        result: list[Mapping[str, Any]] = self.get("query", query=expression)["result"]
        return [
            series for series in result if "values" in series or not math.isnan(float(series["value"][1]))
        ]


@contextmanager
def running(config: Path, *, scrape: str = "1s") -> Iterator[Prometheus]:
    """Prometheus on a configuration, which it scrapes and evaluates every second; ended with SIGTERM."""
    fast = config.with_name("fast.yml")
    fast.write_text(re.sub(r"(_interval: )\S+", rf"\g<1>{scrape}", config.read_text()))
    port = free_port()
    argv = [binary("prometheus") or "prometheus", f"--config.file={fast}"]
    argv += [f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={config.parent / 'data'}"]
    with (config.parent / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"})
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: process.poll() is not None or answers(f"{url}/-/ready"))
        assert process.poll() is None, (config.parent / "log").read_text()
        yield Prometheus(url)
    finally:
        process.terminate()
        process.wait(60)


def selectors(expression: str) -> Sequence[str]:
    """The selectors of an expression: of an alert, which is silent, they must have data."""
    return SELECTOR.findall(expression)


def panel_queries(board: Mapping[str, Any], window: str = "1m") -> Iterator[tuple[str, str]]:
    """Title and PromQL of each query of a dashboard, its variables set to all that there is."""
    values = {v["name"]: v.get("allValue", "") for v in board["templating"]["list"]}
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$__rate_interval", window)
            yield panel["title"], re.sub(r"\$\{(\w+):pipe\}", lambda match: values[match[1]], text)
