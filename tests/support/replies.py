"""Replies of small HTTP servers that stand in for a registry or a hub."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler


class Replies(BaseHTTPRequestHandler):
    """A handler that replies with bytes, and says nothing on stderr."""

    def reply(self, status: int, body: bytes = b"", length: int | None = None, **headers: str) -> None:
        """Send a body, or to HEAD its size; ``length``: another size than it has."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass
