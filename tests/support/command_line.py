"""A rendered command line, started by the embedded tritonserver as a container would start it.

``argv`` is the container's command with its arguments. The caller fills in variables, since platforms differ
(``expanded`` for Kubernetes). Paths and ports become those of this machine. The command may also be a shell
that calls ``tritonserver``: that word is a script on PATH, which adds only what differs here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.serve_repository import answers, free_port, until
from tests.support.triton_faults import faults, process_aborted
from triton_repo_builder.run.client.admin_key import HEADER
from triton_repo_builder.run.serve.embedded import install

MODELS = "/models"
_VARIABLE = re.compile(r"\$\((\w+)\)")


def expanded(argv: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The command with Kubernetes' ``$(NAME)`` filled in; a name without a value fails the test."""
    return [_VARIABLE.sub(lambda match: variables[match[1]], word) for word in argv]


@dataclass(kw_only=True)
class Started:
    """A tritonserver that was started by a rendered command line."""

    process: subprocess.Popen[bytes]
    http: str
    """``http://127.0.0.1:PORT``."""
    grpc: str
    """``127.0.0.1:PORT``."""
    metrics: str
    log: Path

    def ready(self, path: str, seconds: float = 120) -> None:
        """Wait until the readiness path answers 200."""
        until(lambda: self.process.poll() is not None or answers(f"{self.http}{path}"), seconds)
        assert self.process.poll() is None, self.told()

    def told(self) -> str:
        """The server's output."""
        return self.log.read_text(errors="replace")

    def status(self, path: str, body: Any = None, key: str = "") -> int:
        """Status of a request; a POST if there is a body."""
        return self.ask(path, body, key)[0]

    def ask(self, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        """Status and JSON of a request; a POST if there is a body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **({HEADER: key} if key else {})}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"{self.http}{path}", data, headers), timeout=60
            ) as response:
                content = response.read()
                return response.status, json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")

    def ends(self, grace: float) -> None:
        """SIGTERM ends the server within its grace, with exit code 0."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(grace) == 0, self.told()


@contextmanager
def started(
    argv: Sequence[str], models: Path, tmp: Path, *, environment: Mapping[str, str] | None = None
) -> Iterator[Started]:
    """Start a command whose repository is at ``/models``; stopped in the end whatever happens."""
    folder = tmp / "engine"
    folder.mkdir()
    installation = install.find()
    install.assemble(installation, folder)
    ports = {kind: free_port() for kind in ("http", "grpc", "metrics")}
    programs = folder / "programs"
    programs.mkdir()
    more = [
        f"--backend-directory={folder / 'backends'}",
        f"--cache-directory={installation.binary.parents[1] / 'caches'}",
        *(f"--{kind}-address=127.0.0.1" for kind in ports),
    ]
    script = programs / "tritonserver"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(installation.binary))} "$@" {shlex.join(more)}\n')
    script.chmod(0o755)
    env = {**install.environment(installation, folder), **(environment or {})}
    env["PATH"] = f"{programs}{os.pathsep}{env['PATH']}"
    log = tmp / "tritonserver.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [_here(word, models, ports) for word in argv],
            stdout=sink,
            stderr=sink,
            env=env,
            cwd=folder,
            start_new_session=True,
        )
    running = Started(
        process=process,
        http=f"http://127.0.0.1:{ports['http']}",
        grpc=f"127.0.0.1:{ports['grpc']}",
        metrics=f"http://127.0.0.1:{ports['metrics']}/metrics",
        log=log,
    )
    faults.watch(running, running.told, lambda: process_aborted(process))
    try:
        yield running
    finally:
        faults.forget(running)
        # With the processes of its Python models, which a killed server leaves behind.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def check(running: Started, models: Path, ready_path: str, key: str, grace: float) -> None:
    """Ready, the golden answer, model control for holders of the key only, and a stop within the grace."""
    running.ready(ready_path)
    name, case, tolerance = golden_case(models)
    code, answer = running.ask(f"/v2/models/{name}/infer", {"inputs": case["inputs"]})
    assert code == 200, answer
    outputs = {output["name"]: output for output in answer["outputs"]}
    for expected in case["outputs"]:
        _same(outputs[expected["name"]]["data"], expected["data"], tolerance)
    index = "/v2/repository/index"
    assert running.status(index, {}) == 403
    assert running.status(index, {}, "not-the-key-of-this-server") == 403
    assert running.status(index, {}, key) == 200
    assert answers(running.metrics)
    running.ends(grace)


def golden_case(models: Path) -> tuple[str, Mapping[str, Any], float]:
    """An endpoint of the repository, its first golden case and tolerance."""
    file = next(iter(sorted(models.glob("*/smoke.json"))))
    document = json.loads(file.read_text())
    return document["endpoint"], document["cases"][0], document["tolerance"]["alone"]


def _same(values: Sequence[Any], expected: Sequence[Any], tolerance: float) -> None:
    if expected and isinstance(expected[0], str):
        assert list(values) == list(expected)
    else:
        np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance)


def _here(word: str, models: Path, ports: Mapping[str, int]) -> str:
    """A word of the command with the repository and the ports of this machine."""
    word = word.replace(f"--model-repository={MODELS}", f"--model-repository={models}")
    for kind, port in ports.items():
        word = re.sub(rf"--{kind}-port=\d+", f"--{kind}-port={port}", word)
    return word
