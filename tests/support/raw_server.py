"""A bare tritonserver of the nvidia-pytriton wheel, assembled by hand: nothing of our serving code is used.

So it tests the onnxruntime backend by itself, and is the baseline that ``trb serve`` is compared with.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.triton_faults import faults, process_aborted
from triton_repo_builder.base import resources

BACKEND = Path(__file__).parents[2] / "triton_repo_builder" / "runtime" / "onnxruntime_backend"


@dataclass(frozen=True, kw_only=True)
class RawServer:
    """A running server: where it answers, what it logs."""

    http: str
    grpc: str
    log: Path
    pid: int
    seconds: float = 120
    """For each answer."""

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Status and JSON of a POST; errors are answers too."""
        return self._call(path, json.dumps(body or {}).encode())

    def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON of a GET."""
        return self._call(path, None)

    def load(self, model: str) -> str:
        """Load a model; the server's reason where it refuses, else nothing."""
        status, answer = self.post(f"/v2/repository/models/{model}/load")
        return "" if status == 200 else str(answer["error"])

    def unload(self, model: str) -> None:
        """Unload a model; the server finishes that in the background."""
        self.post(f"/v2/repository/models/{model}/unload")

    def infer(
        self, model: str, inputs: Sequence[tuple[str, str, Any]], outputs: Sequence[str] = ()
    ) -> tuple[int, Any]:
        """Status and answer for inputs of (name, datatype, nested lists)."""
        body: dict[str, Any] = {
            "inputs": [
                {"name": name, "datatype": datatype, "shape": _shape(data), "data": data}
                for name, datatype, data in inputs
            ]
        }
        if outputs:
            body["outputs"] = [{"name": name} for name in outputs]
        return self.post(f"/v2/models/{model}/infer", body)

    def statistics(self, model: str, requests: int) -> dict[str, Any]:
        """The model's statistics once all its ``requests`` are in them: they come after the answers."""
        last: dict[str, Any] = {}
        until = time.monotonic() + 30
        while True:
            answer: dict[str, Any] = self.get(f"/v2/models/{model}/stats")[1]["model_stats"][0]
            done = sum(answer["inference_stats"][kind]["count"] for kind in ("success", "fail"))
            # An execution may be counted after its requests: then they change once more.
            if (done >= requests and answer == last) or time.monotonic() > until:
                return answer
            last = answer
            time.sleep(0.2)

    def _call(self, path: str, body: bytes | None) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.http}{path}", data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=self.seconds) as response:
                status, text = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        return status, json.loads(text) if text else None


def _shape(data: Any) -> list[int]:
    shape = []
    while isinstance(data, list):
        shape.append(len(data))
        data = data[0] if data else None
    return shape


def assemble_backends(directory: Path) -> Path:
    """The Python backend from the wheel and our onnxruntime backend; the server refuses links."""
    server = _wheel() / "pytriton" / "tritonserver"
    python = directory / "python"
    python.mkdir(parents=True)
    for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
        shutil.copy2(server / "backends" / "python" / name, python)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy2(server / "python_backend_stubs" / version / "triton_python_backend_stub", python)
    (python / "triton_python_backend_stub").chmod(0o755)
    (directory / "onnxruntime").mkdir()
    for name, path in resources.onnxruntime_backend().items():
        shutil.copyfile(path, directory / "onnxruntime" / name)
    return directory


@contextmanager
def raw_server(
    repository: Path,
    scratch: Path,
    *,
    arguments: Sequence[str] = ("--model-control-mode=explicit",),
    environment: Mapping[str, str] | None = None,
) -> Iterator[RawServer]:
    """A server on free loopback ports, stopped at the end of the block."""
    backends = assemble_backends(scratch / "backends")
    http, grpc = _free_ports(2)
    log = scratch / "server.log"
    argv = [
        str(_wheel() / "pytriton" / "tritonserver" / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        "--http-address=127.0.0.1",
        f"--http-port={http}",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={grpc}",
        "--allow-metrics=false",
        "--exit-on-error=false",
        *arguments,
    ]
    env = {**os.environ, **_paths(), **(environment or {})}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            argv, env=env, stdout=sink, stderr=sink, cwd=scratch, start_new_session=True
        )
    server = RawServer(http=f"127.0.0.1:{http}", grpc=f"127.0.0.1:{grpc}", log=log, pid=process.pid)
    faults.watch(server, lambda: log.read_text(errors="replace"), lambda: process_aborted(process))
    try:
        _wait_until_live(server, process)
        yield server
    finally:
        faults.forget(server)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # The processes of its Python models, which a killed or hung server leaves behind.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _wait_until_live(server: RawServer, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"tritonserver ended with {process.returncode}\n{server.log.read_text()}")
        try:
            if server.get("/v2/health/live")[0] == 200:
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"tritonserver did not answer\n{server.log.read_text()}")


def _wheel() -> Path:
    return Path(sysconfig.get_paths()["purelib"])


def _paths() -> dict[str, str]:
    # LIBDIR first: the stub must find this interpreter's libpython, not the system's.
    libraries = [str(sysconfig.get_config_var("LIBDIR")), str(_wheel() / "nvidia_pytriton.libs")]
    return {
        "LD_LIBRARY_PATH": ":".join(libraries),
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
    }


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
