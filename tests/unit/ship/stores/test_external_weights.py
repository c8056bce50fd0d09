"""Weights from a web server that fails for a moment."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Manifest
from triton_repo_builder.ship.stores import external_weights, retries

DATA = bytes(range(256)) * 5_000


class Server(ThreadingHTTPServer):
    """Fails the first times: with a status, (0) without an answer, or (1) in the middle of it."""

    status, left, asked = 503, 2, 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        fails = self.server.left > 0
        self.server.left -= 1
        if fails and self.server.status == 0:
            return
        status = self.server.status if fails and self.server.status > 1 else 200
        self.send_response(status)
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        self.wfile.write(DATA[:100_000] if fails else DATA)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(retries, "PAUSES", (0.01,) * (retries.TRIES - 1))
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def fetch(root: Path, server: Server) -> tuple[list[str], int]:
    record = {
        "sha256": hashlib.sha256(DATA).hexdigest(),
        "bytes": len(DATA),
        "url": f"http://127.0.0.1:{server.server_port}/weights",
    }
    manifest = Manifest.of_json({"endpoints": {}, "files": {"m/1/weights.onnx": record}})
    return external_weights.fetch(root, manifest, lambda text: None)


@pytest.mark.parametrize("status", [500, 503, 0, 1])
def test_a_failure_of_a_moment_is_none(tmp_path: Path, server: Server, status: int) -> None:
    server.status = status
    assert fetch(tmp_path, server) == (["m/1/weights.onnx"], 0)
    assert (tmp_path / "m" / "1" / "weights.onnx").read_bytes() == DATA
    assert server.asked == 3


@pytest.mark.parametrize(
    ("status", "asked"), [(503, retries.TRIES), (0, retries.TRIES), (1, retries.TRIES), (404, 1)]
)
def test_one_that_stays_is_told_with_the_number_of_tries(
    tmp_path: Path, server: Server, status: int, asked: int
) -> None:
    server.status, server.left = status, 99
    with pytest.raises(TrbError) as caught:
        fetch(tmp_path, server)
    assert (caught.value.code, server.asked) == (Code.DOWNLOAD_FAILED, asked)
    assert (f"tried {retries.TRIES} times" in caught.value.message) is (asked > 1)
    assert list(tmp_path.rglob("weights*")) == []
