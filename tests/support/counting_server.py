"""A server with the HTTP answers of a tritonserver, and with numbers that a test sets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from triton_repo_builder.run.client import Urls

PHASES = ("queue", "compute_input", "compute_infer", "compute_output")


@dataclass
class Model:
    """The counters of one version of a model."""

    version: str = "1"
    config: dict[str, Any] = field(default_factory=dict)
    state: str = "READY"
    reason: str = ""
    success: int = 0
    fail: int = 0
    rows: int = 0
    executions: int = 0
    ns: dict[str, int] = field(default_factory=dict)
    """Of each phase, and ``success`` for whole requests."""


@dataclass
class CountingServer:
    """Models by name, each with its versions, and lines of the metrics page."""

    models: dict[str, list[Model]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    status: dict[str, int] = field(default_factory=dict)
    """Statuses of paths that are refused."""
    texts: dict[str, str] = field(default_factory=dict)
    """Other answers, by path."""
    requests: list[str] = field(default_factory=list)
    ready: bool = True
    port: int = 0

    @property
    def urls(self) -> Urls:
        """Its addresses: the metrics page is at the same port."""
        url = f"http://127.0.0.1:{self.port}"
        return Urls(http=url, grpc="127.0.0.1:1", metrics=f"{url}/metrics")

    def add(
        self, name: str, *, steps: tuple[str, ...] = (), backend: str = "onnxruntime", version: str = "1"
    ) -> Model:
        """Load a version of a model; with ``steps`` an ensemble."""
        config: dict[str, Any] = {"name": name, "backend": backend}
        if steps:
            listed = [{"model_name": step, "model_version": -1} for step in steps]
            config = {"name": name, "platform": "ensemble", "ensemble_scheduling": {"step": listed}}
        model = Model(version=version, config=config)
        self.models.setdefault(name, []).append(model)
        return model

    def count(self, name: str, requests: int, *, rows: int = 1, batch: int = 1, ms: float = 1.0) -> None:
        """Count requests of so many rows, ``batch`` requests an execution; a quarter of the time is queue."""
        model = self.models[name][-1]
        model.success += requests
        model.rows += requests * rows
        model.executions += requests // batch
        total = int(requests * ms * 1e6)
        for phase, share in zip(("success", *PHASES), (1.0, 0.25, 0.125, 0.5, 0.125), strict=True):
            model.ns[phase] = model.ns.get(phase, 0) + int(total * share)

    def answer(self, path: str) -> tuple[int, str]:
        """Status and text of an answer."""
        self.requests.append(path)
        if path in self.status:
            return self.status[path], json.dumps({"error": "not here"})
        if path in self.texts:
            return 200, self.texts[path]
        if path == "/metrics":
            return 200, "\n".join([*self._page(), *self.lines, ""])
        if path.startswith("/v2/health/"):
            return 200 if self.ready else 400, ""
        documents: dict[str, Any] = {
            "/v2": {"name": "triton", "version": "2.51.0"},
            "/v2/models/stats": {"model_stats": [*self._statistics()]},
            "/v2/repository/index": [*self._index()],
            **{f"/v2/models/{name}/config": versions[0].config for name, versions in self.models.items()},
        }
        if path in documents:
            return 200, json.dumps(documents[path])
        return 404, json.dumps({"error": f"no {path}"})

    def _versions(self) -> Iterator[tuple[str, Model]]:
        return ((name, model) for name, versions in self.models.items() for model in versions)

    def _index(self) -> Iterator[Mapping[str, str]]:
        for name, model in self._versions():
            yield {"name": name, "version": model.version, "state": model.state, "reason": model.reason}

    def _statistics(self) -> Iterator[Mapping[str, Any]]:
        for name, model in self._versions():
            if model.state != "READY":
                continue
            phases = {phase: {"count": model.success, "ns": model.ns.get(phase, 0)} for phase in PHASES}
            size = max(1, model.rows // max(1, model.executions))
            each = max(1, model.success // max(1, model.executions))
            batch = {
                phase: {"count": model.executions, "ns": model.ns.get(phase, 0) // each}
                for phase in PHASES[1:]
            }
            yield {
                "name": name,
                "version": model.version,
                "inference_count": model.rows,
                "execution_count": model.executions,
                "inference_stats": {
                    "success": {"count": model.success, "ns": model.ns.get("success", 0)},
                    "fail": {"count": model.fail, "ns": 0},
                    **phases,
                },
                "batch_stats": [{"batch_size": size, **batch}] if model.executions else [],
            }

    def _page(self) -> Iterator[str]:
        for name, model in self._versions():
            labels = f'model="{name}",version="{model.version}"'
            yield f"nv_inference_request_success{{{labels}}} {model.success}"
            yield f'nv_inference_request_failure{{{labels},reason="OTHER"}} {model.fail}'
            yield f"nv_inference_count{{{labels}}} {model.rows}"
            yield f"nv_inference_exec_count{{{labels}}} {model.executions}"
            for phase in ("success", *PHASES):
                metric = "request" if phase == "success" else phase
                yield f"nv_inference_{metric}_duration_us{{{labels}}} {model.ns.get(phase, 0) // 1000}"


@contextmanager
def running(server: CountingServer) -> Iterator[CountingServer]:
    """The server on a free loopback port, or the port it had before."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = server.answer(self.path)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Nothing."""

    listening = ThreadingHTTPServer(("127.0.0.1", server.port), Answering)
    server.port = listening.server_port
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def text_endpoint() -> CountingServer:
    """A server with one text endpoint of three models, as ``trb build`` makes them."""
    server = CountingServer()
    server.add("bert", steps=("bert_tokenizer", "bert_model"))
    server.add("bert_tokenizer", backend="python")
    server.add("bert_model")
    return server
