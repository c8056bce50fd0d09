"""The page at ``/`` to try endpoints by hand, the routes it needs, and the documentation of all routes."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from triton_repo_builder.run.gateway import openapi
from triton_repo_builder.run.gateway.call import JSON, Call, Reply, Route, reply
from triton_repo_builder.run.gateway.catalogue import Served
from triton_repo_builder.run.gateway.docs_page import DocsPage
from triton_repo_builder.run.gateway.refusal import Headers, Refusal

PAGE = Path(__file__).resolve().parents[1] / "page" / "index.html"
HTML = b"text/html; charset=utf-8"
POLICY = (
    "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data: blob:; "
    "media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: only the file's own script and style, and requests to the gateway."""
HOST = re.compile(rb"[A-Za-z0-9._-]+(:\d+)?|\[[0-9A-Fa-f:.]+\](:\d+)?")
LOCAL = "localhost:9000"
PAIR = "TEXT_PAIR"
"""Input of a classifier that takes pairs as well."""


async def page(call: Call) -> Reply:
    """``GET /``."""
    _check_on(call)
    body, headers = _index()
    return tagged(call, body, HTML, headers)


@cache
def _index() -> tuple[bytes, Headers]:
    body = PAGE.read_bytes()
    return body, guarded(body)


async def endpoints(call: Call) -> Reply:
    """``GET /try``: the endpoints as the page shows them."""
    _check_on(call)
    return reply({"endpoints": [_shown(served) for served in call.gateway.catalogue]})


def _shown(served: Served) -> dict[str, Any]:
    return {
        "name": served.name,
        "task": served.task,
        "max_length": served.rules.max_length or None,
        "mask": served.facts.get("mask"),
        "pairs": PAIR in served.endpoint.optional,
    }


def _check_on(call: Call) -> None:
    if not call.gateway.options.page:
        raise Refusal(404, "the page is off (--no-page)", code="not_found")


def address(call: Call) -> str:
    """The URL of this gateway as the client writes it."""
    host = call.headers.get(b"host", b"")
    forwarded = call.headers.get(b"x-forwarded-proto", b"")
    host_name = host.decode() if HOST.fullmatch(host) else LOCAL
    return f"{'https' if forwarded == b'https' else 'http'}://{host_name}"


def guarded(body: bytes) -> Headers:
    """Headers by which a browser runs nothing but this HTML's own script and style."""
    sources = {tag: " ".join(_hashes(body, tag)) or "'none'" for tag in ("script", "style")}
    return [
        (b"content-security-policy", POLICY.format_map(sources).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    ]


def _hashes(body: bytes, tag: str) -> list[str]:
    inner = re.findall(f"<{tag}>(.*?)</{tag}>".encode(), body, re.DOTALL)
    return [f"'sha256-{base64.b64encode(hashlib.sha256(each).digest()).decode()}'" for each in inner]


def tagged(call: Call, body: bytes, type: bytes, headers: Headers) -> Reply:
    """The answer, or 304 if the client has the same already."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode()
    headers = [*headers, (b"etag", tag), (b"cache-control", b"no-cache")]
    listed = [
        each.strip().removeprefix(b"W/") for each in call.headers.get(b"if-none-match", b"").split(b",")
    ]
    return Reply(b"" if tag in listed else body, type, 304 if tag in listed else 200, headers)


ROUTES = (
    Route(path="/", handler=page, api="gateway", method="GET", summary="The page to try it", open=True),
    Route(path="/try", handler=endpoints, api="gateway", method="GET"),
)


class Documentation:
    """All routes, and the routes that describe them."""

    def __init__(self, apis: Iterable[Route]) -> None:
        about: Any = {"api": "gateway", "method": "GET"}
        self.routes: tuple[Route, ...] = (
            *apis,
            *ROUTES,
            Route(path="/docs", handler=self.docs, summary="All routes", open=True, **about),
            Route(
                path="/openapi.json", handler=self.description, summary="All routes in OpenAPI 3.1", **about
            ),
        )
        self.described = [route for route in self.routes if route.summary]
        """Without the routes that only the page calls, which have no summary."""

    async def docs(self, call: Call) -> Reply:
        """``GET /docs``."""
        options = call.gateway.options
        shown = DocsPage(address=address(call), keyed=options.keys is not None, page=options.page)
        body = shown.render(self.described, call.gateway.catalogue).encode()
        return tagged(call, body, HTML, guarded(body))

    async def description(self, call: Call) -> Reply:
        """``GET /openapi.json``."""
        keyed = call.gateway.options.keys is not None
        document = openapi.document(self.described, call.gateway.catalogue, keyed=keyed)
        return tagged(call, orjson.dumps(document), JSON, [])
