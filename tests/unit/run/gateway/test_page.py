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

import numpy as np
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
    """Endpoints, and the answers of a server."""

    def __init__(self, *endpoints: Served, answers: Any = (), **options: Any) -> None:
        self.catalogue = Catalogue(endpoints)
        self.options = GatewayOptions(**options)
        self.answers = answers
        self.started = 0.0
        self.asked: list[Any] = []

    async def infer(self, call: Call, one: Served, columns: Any, outputs: Any) -> Any:
        self.asked.append((one.name, columns, tuple(outputs)))
        return self.answers


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


GATEWAY = FakeGateway(served("minilm", recognition.EMBEDDING), served("mask", recognition.FILL_MASK, mask="<mask>"))


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
    script = FILE.split("<script>")[1].replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|@import|url\(|import\(", script + FILE.split("<style>")[1].split("</style>")[0])


@pytest.mark.parametrize("word", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("])
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


@pytest.mark.parametrize("handler", [page.page, page.docs])
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


@pytest.mark.parametrize("handler", [page.page, page.docs, page.description])
def test_client_that_has_it_already_gets_304(handler: Any) -> None:
    first = answer(handler, GATEWAY, "/", host="localhost:9000")
    assert first.status == 200
    assert header(first, b"cache-control") == "no-cache"
    tag = header(first, b"etag")
    again = answer(handler, GATEWAY, "/", host="localhost:9000", if_none_match=f'"other", W/{tag}')
    assert (again.status, again.body) == (304, b"")
    assert header(again, b"etag") == tag
    assert answer(handler, GATEWAY, "/", host="localhost:9000", if_none_match='"other"').status == 200


@pytest.mark.parametrize("handler", [page.page, page.endpoints, page.attempt])
def test_page_can_be_switched_off(handler: Any) -> None:
    with pytest.raises(Refusal) as refused:
        answer(handler, FakeGateway(page=False), "/")
    assert refused.value.status == 404


def test_docs_stay_without_the_page() -> None:
    assert b"Try an endpoint" not in answer(page.docs, FakeGateway(page=False), "/docs").body
    assert b"Try an endpoint" in answer(page.docs, FakeGateway(), "/docs").body


# ---- documentation


def docs(gateway: Any = GATEWAY, **headers: str) -> str:
    return html.unescape(answer(page.docs, gateway, "/docs", **headers).body.decode())


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
    assert "No endpoint here does embedding." in docs(FakeGateway(served("mask", recognition.FILL_MASK)))


def test_docs_of_a_gateway_with_keys_name_no_endpoint() -> None:
    gateway = FakeGateway(served("minilm", recognition.EMBEDDING), keys=Path("keys.txt"))
    text = docs(gateway, host="localhost:9000")
    assert "minilm" not in text
    assert '"model": "MODEL"' in text
    assert '-H "Authorization: Bearer $API_KEY"' in text


def test_name_of_an_endpoint_is_text_in_the_docs() -> None:
    body = answer(page.docs, FakeGateway(served("<i>x", recognition.EMBEDDING)), "/docs").body
    assert b"<i>" not in body
    assert b"&lt;i&gt;x" in body


# ---- the page's routes


def test_page_gets_the_endpoints_with_task_limit_and_mask() -> None:
    assert json.loads(answer(page.endpoints, GATEWAY, "/try").body) == {
        "endpoints": [
            {"name": "minilm", "task": "embedding", "max_length": 128, "mask": None},
            {"name": "mask", "task": "fill-mask", "max_length": 128, "mask": "<mask>"},
        ]
    }


def test_attempt_passes_rows_on_and_gives_rows_back() -> None:
    parts = [
        {"labels": np.array([[b"caf\xc3\xa9", b"b"]], dtype=object), "scores": np.array([[0.75, 0.25]], np.float32)},
        {"labels": np.array([[b"b", b""]], dtype=object), "scores": np.array([[0.1, 0]], np.float32)},
    ]
    gateway = FakeGateway(served("clip", recognition.ZERO_SHOT_IMAGE), answers=parts)
    body = {"IMAGE": ["aGk=", "aGk="], "LABELS": [["a", "b"], ["b", ""]]}
    reply = answer(page.attempt, gateway, "/try/clip", body, parameter="clip")
    assert json.loads(reply.body)["rows"] == [
        {"labels": ["café", "b"], "scores": [0.75, 0.25]},
        {"labels": ["b", ""], "scores": [0.1, 0.0]},
    ]
    columns = {"IMAGE": [b"aGk=", b"aGk="], "LABELS": [[b"a", b"b"], [b"b", b""]]}
    assert gateway.asked == [("clip", columns, ("labels", "scores"))]


@pytest.mark.parametrize(
    "body",
    [
        {"IMAGE": ["a"]},
        {"IMAGE": ["a"], "LABELS": [["a"]], "TEXT": ["a"]},
        {"IMAGE": "a", "LABELS": [["a"]]},
        {"IMAGE": [], "LABELS": []},
        {"IMAGE": [1], "LABELS": [["a"]]},
        {"IMAGE": ["a"], "LABELS": [[]]},
        {"IMAGE": ["a"], "LABELS": [["a", 1]]},
        {"IMAGE": ["a", "b"], "LABELS": [["a"]]},
        {"IMAGE": ["a", "b"], "LABELS": [["a"], ["a", "b"]]},
        {"IMAGE": ["\ud800"], "LABELS": [["a"]]},
    ],
)
def test_attempt_refuses_what_is_no_row(body: Any) -> None:
    gateway = FakeGateway(served("clip", recognition.ZERO_SHOT_IMAGE))
    with pytest.raises(Refusal) as refused:
        answer(page.attempt, gateway, "/try/clip", body, parameter="clip")
    assert refused.value.status == 400
    assert gateway.asked == []


def test_attempt_obeys_the_limit_of_items() -> None:
    gateway = FakeGateway(served("minilm", recognition.EMBEDDING), most_items=2)
    with pytest.raises(Refusal) as refused:
        answer(page.attempt, gateway, "/try/minilm", {"TEXT": ["a"] * 3}, parameter="minilm")
    assert refused.value.status == 413
