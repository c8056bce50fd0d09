"""A real tritonserver with two gateways, for clients that know nothing of trb.

``TRB_PYTHON`` names the Python that has trb; without it, that of .venv.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kserve import Server

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "data" / "models"
PYTHON = os.environ.get("TRB_PYTHON") or str(ROOT / ".venv" / "bin" / "python")
FREE = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")
HUB, LITELLM = "huggingface.co", "/litellm/"
LOCAL = ("127.0.0.1", "localhost", "::1", None)
KEY = "key-of-these-tests"

# Before any client is imported.
os.environ.pop("HF_HUB_OFFLINE", None)  # with it huggingface_hub refuses any request, to loopback as well
os.environ.update(
    ANONYMIZED_TELEMETRY="False",  # chromadb
    DO_NOT_TRACK="1",
    HAYSTACK_TELEMETRY_ENABLED="False",
    HF_HUB_DISABLE_TELEMETRY="1",
    LITELLM_LOCAL_MODEL_COST_MAP="True",
    NO_PROXY="127.0.0.1,localhost",
    TOKENIZERS_PARALLELISM="false",
)
for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "CO_API_KEY", "CO_API_URL", "COHERE_API_KEY", "HF_TOKEN"):
    os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def only_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No client reaches anything but loopback, in background threads neither.

    litellm alone may try to: its provider huggingface looks each model up on the hub, in a thread of its own.
    """
    attempts: list[Any] = []
    connect, resolve = socket.socket.connect, socket.getaddrinfo

    def connect_here(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in LOCAL:
            attempts.append(address)
            raise ConnectionRefusedError(f"a test tried to reach {address}")
        connect(self, address)

    def resolve_here(host: Any, *arguments: Any, **options: Any) -> Any:
        if host not in LOCAL:
            if host != HUB or not any(LITELLM in frame.filename for frame in traceback.extract_stack()):
                attempts.append(host)
            raise socket.gaierror(f"a test looked up {host}")
        return resolve(host, *arguments, **options)

    monkeypatch.setattr(socket.socket, "connect", connect_here)
    monkeypatch.setattr(socket, "getaddrinfo", resolve_here)
    yield
    assert attempts == []


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model repository with an endpoint of each task that a route answers."""
    folder = tmp_path_factory.mktemp("clients")
    done = subprocess.run(
        [PYTHON, str(ROOT / "tests" / "clients" / "repository.py"), str(folder)],
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "model_repository"


@pytest.fixture(scope="session")
def triton(repository: Path) -> Iterator[dict[str, str]]:
    """URLs of a tritonserver that runs it: http, grpc."""
    with _running(repository.parent / "serve", "serve", str(repository), *FREE) as about:
        yield about["urls"]


@pytest.fixture(scope="session")
def server(triton: dict[str, str]) -> Server:
    """The server that every answer is compared with."""
    return Server(triton["http"])


@pytest.fixture(scope="session")
def url(triton: dict[str, str], repository: Path) -> Iterator[str]:
    """The gateway."""
    with _gateway(triton, repository) as address:
        yield address


@pytest.fixture(scope="session")
def closed_url(triton: dict[str, str], repository: Path) -> Iterator[str]:
    """A gateway that wants the API key ``KEY``."""
    keys = repository.parent / "keys.txt"
    keys.write_text(f"{KEY} tests\n")
    keys.chmod(0o600)
    with _gateway(triton, repository, "--api-keys", str(keys)) as address:
        yield address


@contextmanager
def _gateway(triton: dict[str, str], repository: Path, *options: str) -> Iterator[str]:
    place = ("--url", triton["grpc"], "--repo", str(repository), "--port", "0", "--deadline", "120")
    log = repository.parent / f"gateway{len(options)}"
    with _running(log, "gateway", *place, *options) as about:
        yield about["url"]


@contextmanager
def _running(log: Path, *arguments: str) -> Iterator[Any]:
    """``trb`` in the background, and what ``--json`` says when it is ready."""
    out, err = log.with_suffix(".out"), log.with_suffix(".err")
    argv = [PYTHON, "-m", "triton_repo_builder", *arguments, "--json"]
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(argv, stdout=stdout, stderr=stderr, env=_environment())
    try:
        deadline = time.monotonic() + 240
        while not out.read_text().endswith("\n"):
            assert process.poll() is None, err.read_text()
            assert time.monotonic() < deadline, err.read_text()
            time.sleep(0.1)
        yield json.loads(out.read_text())
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _environment() -> dict[str, str]:
    """The environment of trb: this checkout's package and the tests' helpers."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests" / "support")))
    return {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
