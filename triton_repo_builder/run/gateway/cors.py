"""Pages of other origins in a browser: refused, unless ``--allow-origin`` names theirs."""

from __future__ import annotations

from collections.abc import Mapping

from triton_repo_builder.run.gateway.refusal import Headers, Refusal

METHODS = b"GET, POST, OPTIONS"
EXPOSED = b"x-request-id, retry-after"
SECONDS = b"600"
"""Time for which a browser may remember the answer."""


class Cors:
    """The origins that are allowed."""

    def __init__(self, origins: str) -> None:
        self.allowed = {origin.strip().rstrip("/").encode() for origin in origins.split(",")} - {b""}

    def headers(self, headers: Mapping[bytes, bytes]) -> Headers:
        """Headers of the answer that let the page read it."""
        origin = headers.get(b"origin")
        if origin is None or not self._allows(origin):
            return []
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", EXPOSED),
            (b"vary", b"Origin"),
        ]

    def preflight(self, headers: Mapping[bytes, bytes]) -> Headers:
        """More headers for the answer to a browser that asks whether it may send a request."""
        if not self.headers(headers):
            return []
        names = headers.get(b"access-control-request-headers", b"")
        return [
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", names if names.isascii() else b"*"),
            (b"access-control-max-age", SECONDS),
        ]

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raises ``Refusal`` 403 for a request of another origin's page.

        Its answer would be hidden from the page, but the endpoint would have done the work.
        """
        origin = headers.get(b"origin")
        if origin is None or self._allows(origin) or headers.get(b"sec-fetch-site") == b"same-origin":
            return
        if origin.partition(b"://")[2] != headers.get(b"host"):
            raise Refusal(
                403,
                f"pages of {origin.decode('latin-1'):.80} may not call this gateway: see --allow-origin",
                code="origin_not_allowed",
            )

    def _allows(self, origin: bytes) -> bool:
        return b"*" in self.allowed or origin in self.allowed
