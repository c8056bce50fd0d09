"""A proxy that notes which routes a client asks for, and the status of each answer."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

HOP = ("connection", "transfer-encoding", "content-length")
"""Headers of one connection; the proxy writes its own."""


class Recorder:
    """Requests since the last ``clear``, as method, path and status."""

    def __init__(self, url: str) -> None:
        self.requests: list[tuple[str, str, int]] = []
        target = urlsplit(url).netloc
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.forward(b"")

            def do_POST(self) -> None:
                self.forward(self.rfile.read(int(self.headers["Content-Length"])))

            def forward(self, body: bytes) -> None:
                connection = http.client.HTTPConnection(target, timeout=60)
                kept = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
                connection.request(self.command, self.path, body, kept)
                answer = connection.getresponse()
                content = answer.read()
                requests.append((self.command, self.path, answer.status))
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in HOP:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                connection.close()

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def recording(url: str) -> Iterator[Recorder]:
    """A proxy in front of a gateway."""
    recorder = Recorder(url)
    Thread(target=recorder.server.serve_forever, daemon=True).start()
    try:
        yield recorder
    finally:
        recorder.server.shutdown()
        recorder.server.server_close()
