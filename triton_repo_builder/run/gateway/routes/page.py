"""The page at ``/`` to try endpoints by hand, the routes it needs, and the documentation of all routes."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from triton_repo_builder.base import templates
from triton_repo_builder.run.gateway import examples, openapi, recognition
from triton_repo_builder.run.gateway.call import JSON, Call, Reply, Route, check_count, encoded, reply
from triton_repo_builder.run.gateway.catalogue import Served
from triton_repo_builder.run.gateway.refusal import Headers, Refusal, invalid
from triton_repo_builder.run.gateway.triton import rows

PAGE = Path(__file__).resolve().parents[1] / "page" / "index.html"
HTML = b"text/html; charset=utf-8"
POLICY = (
    "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data: blob:; "
    "media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: only the file's own script and style, and requests to the gateway."""
HOST = re.compile(rb"[A-Za-z0-9._-]+(:\d+)?|\[[0-9A-Fa-f:.]+\](:\d+)?")
LOCAL = "localhost:9000"


async def page(call: Call) -> Reply:
    """``GET /``."""
    _check_on(call)
    body, headers = _index()
    return tagged(call, body, HTML, headers)


@cache
def _index() -> tuple[bytes, Headers]:
    body = PAGE.read_bytes()
    return body, guarded(body)


async def docs(call: Call) -> Reply:
    """``GET /docs``. With API keys it names no endpoint: a browser cannot send a key for a page."""
    gateway = call.gateway
    keyed = gateway.options.keys is not None
    listed = [examples.example(route, gateway.catalogue, named=not keyed) for route in _documented()]
    text = templates.render(
        "gateway_docs.html.jinja",
        apis=[
            (title, [one for one in listed if one.route.api == api]) for api, title in openapi.APIS.items()
        ],
        address=address(call),
        keyed=keyed,
        page=gateway.options.page,
    )
    body = text.encode()
    return tagged(call, body, HTML, guarded(body))


async def description(call: Call) -> Reply:
    """``GET /openapi.json``."""
    keyed = call.gateway.options.keys is not None
    document = openapi.document(_documented(), call.gateway.catalogue, keyed=keyed)
    return tagged(call, orjson.dumps(document), JSON, [])


def _documented() -> list[Route]:
    """All routes but those that only the page calls, which have no summary."""
    from triton_repo_builder.run.gateway import routes  # it imports this module

    return [route for route in routes.ALL if route.summary]


async def endpoints(call: Call) -> Reply:
    """``GET /try``: the endpoints as the page shows them."""
    _check_on(call)
    return reply({"endpoints": [_shown(one) for one in call.gateway.catalogue]})


def _shown(served: Served) -> dict[str, Any]:
    return {
        "name": served.name,
        "task": served.task,
        "max_length": served.rules.max_length or None,
        "mask": served.facts.get("mask"),
    }


async def attempt(call: Call) -> Reply:
    """``POST /try/NAME``: inputs and outputs by the task's names, for tasks that no other route has.

    An input is a list with a row each, a string or (``LABELS``) a list of strings; images are in base64.
    """
    _check_on(call)
    served = call.find(call.parameter, *recognition.BY_TASK)
    signature = recognition.BY_TASK[served.task]
    document = call.document()
    if set(document) != set(signature.inputs):
        raise invalid(f"the model '{served.name}' takes {' and '.join(signature.inputs)}")
    columns = {name: _column(call, document[name], name) for name in signature.inputs}
    if len({len(column) for column in columns.values()}) > 1:
        raise invalid(f"{' and '.join(columns)} must have as many rows")
    answers = await call.infer(served, columns, signature.outputs)
    listed = [{name: _plain(array) for name, array in row.items()} for row in rows(answers)]
    return reply({"rows": listed})


def _column(call: Call, value: object, name: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise invalid(f"`{name}` must be a list with a row each", name)
    check_count(len(value), name, call.gateway.options.most_items)
    if all(isinstance(row, str) for row in value):
        return list(encoded(value, name))
    if all(isinstance(row, list) and row and all(isinstance(one, str) for one in row) for row in value):
        if len({len(row) for row in value}) > 1:
            raise invalid(f"the rows of `{name}` must be of one length", name)
        return [encoded(row, name) for row in value]
    raise invalid(f"`{name}` must have strings, or lists of strings, as rows", name)


def _plain(array: Any) -> Any:
    """Numbers as they are; strings, which are bytes in arrays of objects, as text."""
    if array.dtype != object:
        return array
    return [each.decode("utf-8", "replace") for each in array.flat]


def _check_on(call: Call) -> None:
    if not call.gateway.options.page:
        raise Refusal(404, "the page is off (--no-page)", code="not_found")


def address(call: Call) -> str:
    """The URL of this gateway as the client writes it."""
    host = call.headers.get(b"host", b"")
    forwarded = call.headers.get(b"x-forwarded-proto", b"")
    known = host.decode() if HOST.fullmatch(host) else LOCAL
    return f"{'https' if forwarded == b'https' else 'http'}://{known}"


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
    listed = [each.strip().removeprefix(b"W/") for each in call.headers.get(b"if-none-match", b"").split(b",")]
    return Reply(b"" if tag in listed else body, type, 304 if tag in listed else 200, headers)


ROUTES = (
    Route(path="/", handler=page, api="gateway", method="GET", summary="The page to try it", open=True),
    Route(path="/docs", handler=docs, api="gateway", method="GET", summary="All routes", open=True),
    Route(
        path="/openapi.json",
        handler=description,
        api="gateway",
        method="GET",
        summary="All routes in OpenAPI 3.1",
    ),
    Route(path="/try", handler=endpoints, api="gateway", method="GET"),
    Route(path="/try/*", handler=attempt, api="gateway", tasks=tuple(recognition.BY_TASK)),
)
