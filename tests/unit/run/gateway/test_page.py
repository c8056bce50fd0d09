"""The page at /, its headers, the documentation, and the routes that only the page calls."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run.gateway import recognition, routes
from triton_repo_builder.run.gateway.call import Call, Reply
from triton_repo_builder.run.gateway.catalogue import Catalogue, Served
from triton_repo_builder.run.gateway.options import GatewayOptions
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.run.gateway.routes import page
from triton_repo_builder.run.gateway.text_rules import TextRules

EMPTY = ("area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source")


def served(name: str, task: str, **facts: Any) -> Served:
    signature = recognition.BY_TASK[task]
    return Served(
        name=name,
        model=name,
        task=task,
        endpoint=Endpoint(
            name=name,
            inputs=tuple(Tensor(name=each, datatype="BYTES", shape=(-1, 1)) for each in signature.inputs),
            outputs=tuple(Tensor(name=each, datatype="FP32", shape=(-1, 1)) for each in signature.outputs),
            max_batch_size=4,
        ),
        rules=TextRules(max_length=128),
        facts=facts,
    )


class FakeGateway:
    """Endpoints and options."""

    def __init__(self, *endpoints: Served, **options: Any) -> None:
        self.catalogue = Catalogue(endpoints)
        self.options = GatewayOptions(**options)


def call(gateway: Any, path: str, body: Any = None, *, parameter: str = "", **headers: str) -> Call:
    return Call(
        gateway=gateway,
        path=path,
        body=json.dumps(body).encode() if body is not None else b"",
        headers={name.replace("_", "-").encode(): value.encode() for name, value in headers.items()},
        id="1",
        parameter=parameter,
    )


def answer(handler: Any, *arguments: Any, **options: Any) -> Reply:
    return asyncio.run(handler(call(*arguments, **options)))


def header(reply: Reply, name: bytes) -> str:
    return dict(reply.headers)[name].decode()


MINILM = served("minilm", recognition.EMBEDDING)
GATEWAY = FakeGateway(MINILM, served("mask", recognition.FILL_MASK, mask="<mask>"))
DOCS, OPENAPI = (
    next(route.handler for route in routes.ALL if route.path == path) for path in ("/docs", "/openapi.json")
)


# ---- the file


class Elements(HTMLParser):
    """Elements of the file, and whether they are nested rightly."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.listed: list[tuple[str, dict[str, str | None]]] = []
        self.stack: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.listed.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag


FILE = page.PAGE.read_text(encoding="utf-8")


def test_page_is_one_file_without_external_resources() -> None:
    elements = Elements(FILE)
    assert elements.stack == []
    sources = [value for _, each in elements.listed for key, value in each.items() if key in ("src", "href")]
    assert sources == ["data:,", "docs"]
    text = FILE.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|@import|: *url\(|import\(", text)


MARKUP = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(")


@pytest.mark.parametrize("word", MARKUP)
def test_page_inserts_text_only_as_text(word: str) -> None:
    assert word not in FILE


def test_page_has_no_attribute_that_its_policy_forbids() -> None:
    attributes = {key for _, each in Elements(FILE).listed for key in each}
    assert "style" not in attributes
    assert not any(key.startswith("on") for key in attributes)


def test_every_field_of_the_page_has_a_label() -> None:
    elements = Elements(FILE).listed
    labelled = {each["for"] for tag, each in elements if tag == "label"}
    fields = {each["id"] for tag, each in elements if tag in ("input", "select", "textarea")}
    assert fields == labelled == {"key", "endpoint"}


def test_page_knows_every_task() -> None:
    tasks = FILE.split("const TASKS = {")[1].split("\n};")[0]
    names = re.findall(r'^  "?([a-z-]+)"?: \{$', tasks, re.MULTILINE)
    assert set(names) == set(recognition.BY_TASK)


# ---- how it is sent


@pytest.mark.parametrize("handler", [page.page, DOCS])
def test_policy_allows_nothing_but_the_files_own_script_and_style(handler: Any) -> None:
    reply = answer(handler, GATEWAY, "/", host="localhost:9000")
    policy = header(reply, b"content-security-policy")
    for tag in ("script", "style"):
        inner = re.findall(f"<{tag}>(.*?)</{tag}>", reply.body.decode(), re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in inner]
        allowed = " ".join(f"'sha256-{each}'" for each in hashes) or "'none'"
        assert f"{tag}-src {allowed};" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert header(reply, b"x-content-type-options") == "nosniff"


@pytest.mark.parametrize("handler", [page.page, DOCS, OPENAPI])
def test_client_that_has_it_already_gets_304(handler: Any) -> None:
    first = answer(handler, GATEWAY, "/", host="localhost:9000")
    assert first.status == 200
    assert header(first, b"cache-control") == "no-cache"
    tag = header(first, b"etag")
    again = answer(handler, GATEWAY, "/", host="localhost:9000", if_none_match=f'"other", W/{tag}')
    assert (again.status, again.body) == (304, b"")
    assert header(again, b"etag") == tag
    assert answer(handler, GATEWAY, "/", host="localhost:9000", if_none_match='"other"').status == 200


@pytest.mark.parametrize("handler", [page.page, page.endpoints])
def test_page_can_be_switched_off(handler: Any) -> None:
    with pytest.raises(Refusal) as refused:
        answer(handler, FakeGateway(page=False), "/")
    assert refused.value.status == 404


def test_docs_stay_without_the_page() -> None:
    assert b"Try an endpoint" not in answer(DOCS, FakeGateway(page=False), "/docs").body
    assert b"Try an endpoint" in answer(DOCS, FakeGateway(), "/docs").body


# ---- documentation


def docs(gateway: Any = GATEWAY, **headers: str) -> str:
    return html.unescape(answer(DOCS, gateway, "/docs", **headers).body.decode())


def test_docs_show_every_route_with_an_endpoint_and_the_clients_address() -> None:
    text = docs(host="gateway.example:8080")
    for route in routes.ALL:
        shown = f"{route.method} {route.path.replace('*', '{name}')}"
        assert (shown in text) == bool(route.summary), shown
    assert "curl http://gateway.example:8080/v1/embeddings" in text
    assert '"model": "minilm"' in text
    assert "MODEL" not in text


@pytest.mark.parametrize("host", ["a'; rm -rf ~ #", "<b>", "", "a b"])
def test_docs_take_no_address_that_is_none(host: str) -> None:
    text = docs(host=host)
    assert "curl http://localhost:9000/v1/embeddings" in text


def test_docs_behind_a_proxy_with_tls() -> None:
    assert "curl https://api.example/v1/models" in docs(host="api.example", x_forwarded_proto="https")


def test_docs_say_which_routes_no_endpoint_can_answer() -> None:
    assert "it needs a classifier whose labels name harm, or `labels` in gateway.toml." in docs(
        FakeGateway(served("mood", recognition.CLASSIFICATION))
    )
    assert "No endpoint here can answer it; it needs embedding." in docs(
        FakeGateway(served("mask", recognition.FILL_MASK))
    )


def test_docs_of_a_gateway_with_keys_name_no_endpoint() -> None:
    gateway = FakeGateway(served("minilm", recognition.EMBEDDING), keys=Path("keys.txt"))
    text = docs(gateway, host="localhost:9000")
    assert "minilm" not in text
    assert '"model": "MODEL"' in text
    assert '-H "Authorization: Bearer $API_KEY"' in text


def test_name_of_an_endpoint_is_text_in_the_docs() -> None:
    body = answer(DOCS, FakeGateway(served("<i>x", recognition.EMBEDDING)), "/docs").body
    assert b"<i>" not in body
    assert b"&lt;i&gt;x" in body


# ---- the page's routes


def test_page_gets_the_endpoints_with_task_limit_and_mask() -> None:
    assert json.loads(answer(page.endpoints, GATEWAY, "/try").body) == {
        "endpoints": [
            {"name": "minilm", "task": "embedding", "max_length": 128, "mask": None, "pairs": False},
            {"name": "mask", "task": "fill-mask", "max_length": 128, "mask": "<mask>", "pairs": False},
        ]
    }
