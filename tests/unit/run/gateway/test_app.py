"""The application around a route: what is let in, what comes back, what is written down."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tiny
from prometheus_client import REGISTRY

from triton_repo_builder.repository.interface import Endpoint
from triton_repo_builder.run.gateway import refusal, routes
from triton_repo_builder.run.gateway.app import App
from triton_repo_builder.run.gateway.call import Call, Reply, Route
from triton_repo_builder.run.gateway.catalogue import Catalogue, Served
from triton_repo_builder.run.gateway.discovery import Discovery
from triton_repo_builder.run.gateway.gateway import Gateway
from triton_repo_builder.run.gateway.options import MIB, GatewayOptions
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.run.gateway.text_rules import TextRules
from triton_repo_builder.run.gateway.triton import PROGRESS, Triton

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SERVED = Served(
    name="m",
    model="m",
    task="embedding",
    endpoint=Endpoint(name="m", max_batch_size=4, inputs=(), outputs=()),
)


class FakeTriton(Triton):
    """Answers each row with its length, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__("fake:8001")
        self.calls: list[dict[str, Any]] = []
        self.before: Callable[[], Awaitable[None]] | None = None

    async def one(self, served: Any, columns: Any, outputs: Any, *more: Any) -> Any:
        _, id, metadata = more
        texts = columns["TEXT"]
        self.calls.append({"id": id, "metadata": metadata, "rows": len(texts)})
        if self.before is not None:
            await self.before()
        if progress := PROGRESS.get():
            progress(len(texts))
        return {"embedding": np.array([[len(text)] for text in texts], dtype=np.float32)}


async def boom(call: Call) -> Reply:
    raise ZeroDivisionError("secret")


def gateway(**options: Any) -> Gateway:
    made = Gateway(FakeTriton(), Discovery(), GatewayOptions(**options))
    made.catalogue = Catalogue([SERVED])
    made.ready = True
    return made


@asynccontextmanager
async def client(gate: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(App(gate))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as made:
        yield made


def ask(gate: Gateway, *requests: dict[str, Any]) -> list[httpx.Response]:
    async def all_of_them() -> list[httpx.Response]:
        async with client(gate) as http:
            return [await http.request(**{"method": "POST", "url": "/v1/embeddings", **r}) for r in requests]

    return asyncio.run(all_of_them())


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_the_id_and_the_trace_reach_triton() -> None:
    gate = gateway()
    headers = {"x-request-id": "abc", "traceparent": PARENT}
    (answer,) = ask(gate, {"json": {"input": ["a", "bb"]}, "headers": headers})
    assert answer.status_code == 200
    assert answer.headers["x-request-id"] == "abc"
    assert [row["embedding"] for row in answer.json()["data"]] == [[1.0], [2.0]]
    assert gate.triton.calls == [{"id": "abc", "metadata": (("traceparent", PARENT),), "rows": 2}]  # type: ignore[attr-defined]


def test_requests_without_an_id_get_one_each() -> None:
    gate = gateway()
    answers = ask(gate, *[{"json": {"input": "a"}}] * 2)
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len({*ids}) == 2
    assert [call["id"] for call in gate.triton.calls] == ids  # type: ignore[attr-defined]


def test_a_request_without_a_key_is_refused_in_its_apis_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys"
    file.write_text("a-key-of-some-length\n")
    file.chmod(0o600)
    tei = Route(path="/tei", handler=boom, api="tei", errors=refusal.tei)
    page = Route(path="/open", handler=opened, api="gateway", method="GET", open=True)
    monkeypatch.setattr(routes, "ALL", (*routes.ALL, tei, page))
    gate = gateway(keys=file)
    body = {"json": {"input": "a"}}
    no, wrong, right, theirs, metrics, free = ask(
        gate,
        body,
        {**body, "headers": {"authorization": "Bearer a-key-of-other-length"}},
        {**body, "headers": {"authorization": "Bearer a-key-of-some-length"}},
        {"url": "/tei", "json": {}},
        {"method": "GET", "url": "/metrics"},
        {"method": "GET", "url": "/open"},
    )
    assert [a.status_code for a in (no, wrong, right, theirs, metrics, free)] == [
        401,
        401,
        200,
        401,
        401,
        200,
    ]
    assert no.json()["error"]["code"] == "invalid_api_key"
    assert no.headers["www-authenticate"] == "Bearer"
    assert theirs.json().keys() == {"error", "error_type"}


async def opened(call: Call) -> Reply:
    return Reply(b"{}")


def test_pages_of_other_origins() -> None:
    page = {"origin": "https://app.example", "access-control-request-method": "POST"}
    asked = {"method": "OPTIONS", "headers": page}
    sent = {"json": {"input": "a"}, "headers": {"origin": "https://app.example"}}
    preflight, refused = ask(gateway(), asked, sent)
    assert preflight.status_code == 204
    assert "access-control-allow-origin" not in preflight.headers
    assert refused.status_code == 403
    preflight, answer, wrong = ask(
        gateway(origins="https://app.example"), asked, sent, {**sent, "json": {"input": 1}}
    )
    for each in (preflight, answer, wrong):
        assert each.headers["access-control-allow-origin"] == "https://app.example"
    assert (answer.status_code, wrong.status_code) == (200, 400)


def test_paths_and_methods() -> None:
    unknown, method, head = ask(
        gateway(),
        {"url": "/nothing"},
        {"method": "GET"},
        {"method": "HEAD", "url": "/v1/models"},
    )
    assert unknown.status_code == 404
    assert method.status_code == 405
    assert method.headers["allow"] == "POST"
    assert head.status_code == 200


def test_a_fault_of_ours_is_an_error_without_its_details(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        routes, "ALL", (Route(path="/boom", handler=boom, api="cohere", errors=refusal.cohere),)
    )
    (answer,) = ask(gateway(), {"url": "/boom", "headers": {"x-request-id": "r7"}})
    assert answer.status_code == 500
    assert answer.json().keys() == {"message"}
    assert "secret" not in answer.text
    said = capsys.readouterr().err
    assert "ZeroDivisionError: secret" in said
    assert "r7" in said


def test_the_largest_body() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(MIB)

    gate = gateway(most_bytes=1)
    stated, streamed, after = ask(
        gate, {"content": bytes(MIB + 1)}, {"content": endless()}, {"json": {"input": "a"}}
    )
    assert (stated.status_code, streamed.status_code, after.status_code) == (413, 413, 200)
    assert stated.headers["connection"] == "close"
    assert gate.admission.bytes == 0


def test_more_requests_than_allowed_get_429_and_no_queue() -> None:
    gate = gateway(most_requests=2)

    async def run() -> list[int]:
        gone = asyncio.Event()
        gate.triton.before = gone.wait  # type: ignore[attr-defined]
        async with client(gate) as http:
            post = [asyncio.create_task(http.post("/v1/embeddings", json={"input": "a"})) for _ in range(5)]
            done, waiting = await asyncio.wait(post, timeout=1)
            refused = [task.result() for task in done]
            assert all(answer.headers["retry-after"] == "1" for answer in refused)
            assert (await http.get("/v1/models")).status_code == 200
            gone.set()
            answers = [await task for task in waiting]
            again = await http.post("/v1/embeddings", json={"input": "a"})
        return [*(a.status_code for a in refused), *(a.status_code for a in answers), again.status_code]

    assert asyncio.run(run()) == [429, 429, 429, 200, 200, 200]
    assert gate.admission.requests == gate.admission.rows == gate.admission.bytes == 0


def test_a_client_that_goes_cancels_the_call() -> None:
    gate = gateway()
    cancelled = []

    async def run() -> None:
        started = asyncio.Event()

        async def wait() -> None:
            started.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        gate.triton.before = wait  # type: ignore[attr-defined]
        sent: list[Any] = []
        messages = [{"type": "http.request", "body": b'{"input": ["a"]}'}]

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await started.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/embeddings", "headers": []}
        await App(gate)(scope, receive, send)
        assert sent == []

    asyncio.run(run())
    assert cancelled == [True]
    assert gate.admission.requests == gate.admission.rows == 0


def test_a_server_that_has_never_answered_is_no_fault_of_the_request() -> None:
    gate = gateway()
    gate.ready, gate.catalogue = False, Catalogue()
    (answer,) = ask(gate, {"json": {"input": "a"}})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"


def test_a_model_that_a_server_may_still_load_is_503() -> None:
    gate = gateway()
    gate.ready = False
    (answer,) = ask(gate, {"json": {"model": "later", "input": "a"}})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert gate._stale.is_set()
    gate.ready = True
    (answer,) = ask(gate, {"json": {"model": "later", "input": "a"}})
    assert answer.status_code == 404


def test_a_late_answer_names_the_deadline_of_the_request() -> None:
    gate = gateway()

    async def late() -> None:
        raise Refusal(504, "no answer within 1.326 s", code="deadline_exceeded")

    gate.triton.before = late  # type: ignore[attr-defined]
    (answer,) = ask(gate, {"json": {"input": "a"}})
    assert answer.status_code == 504
    assert "no answer within 30 s (--deadline)" in answer.json()["error"]["message"]


def test_a_model_that_is_just_loaded_again_is_503_and_looked_up() -> None:
    gate = gateway()

    async def missing() -> None:
        raise Refusal(404, "Request for unknown model: 'm' is not found")

    gate.triton.before = missing  # type: ignore[attr-defined]
    (answer,) = ask(gate, {"json": {"input": "a"}})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert gate._stale.is_set()


def test_while_it_drains_health_is_503_and_requests_are_answered() -> None:
    gate = gateway()
    gate.draining = True
    health, answer = ask(gate, {"method": "GET", "url": "/health"}, {"json": {"input": "a"}})
    assert health.status_code == 503
    assert answer.status_code == 200
    assert answer.headers["connection"] == "close"


def test_metrics_by_route_model_status_and_cause() -> None:
    gate = gateway()
    route = {"route": "/v1/embeddings", "status": "200", "model": "m"}
    before = sample("trb_gateway_requests_total", **route)
    items = sample("trb_gateway_items_total", model="m")
    unknown = {"route": "/v1/embeddings", "status": "404", "model": ""}
    missing = sample("trb_gateway_requests_total", **unknown)
    infer = sample("trb_gateway_phase_seconds_count", phase="infer")
    ask(
        gate,
        {"json": {"input": ["a", "b"]}},
        *[{"json": {"input": "a", "model": f"made-up-{number}"}} for number in range(20)],
        *[{"url": f"/made/up/{number}"} for number in range(20)],
    )
    assert sample("trb_gateway_requests_total", **route) == before + 1
    assert sample("trb_gateway_items_total", model="m") == items + 2
    assert sample("trb_gateway_requests_total", **unknown) == missing + 20
    assert sample("trb_gateway_phase_seconds_count", phase="infer") == infer + 1
    assert sample("trb_gateway_failures_total", cause="not_found") >= 40
    (page,) = ask(gate, {"method": "GET", "url": "/metrics"})
    assert page.headers["content-type"].startswith("text/plain")
    assert "made" not in page.text


def test_a_request_is_counted_after_its_answer_is_sent() -> None:
    route = {"route": "/v1/models", "status": "200", "model": ""}

    async def counts() -> list[float]:
        async def send(message: Any) -> None:
            taken.append(sample("trb_gateway_requests_total", **route))

        taken: list[float] = []
        scope = {"type": "http", "method": "GET", "path": "/v1/models", "headers": []}
        await App(gateway())(scope, asyncio.Event().wait, send)
        taken.append(sample("trb_gateway_requests_total", **route))
        for _ in range(2):
            await asyncio.sleep(0)
        return [*taken, sample("trb_gateway_requests_total", **route)]

    before, *others = asyncio.run(counts())
    assert others == [before, before, before + 1]


def test_the_log_says_what_a_request_was(capsys: pytest.CaptureFixture[str]) -> None:
    gate = gateway(log_format="json")
    headers = {"x-request-id": "r1", "traceparent": PARENT}
    ask(gate, {"json": {"input": ["a", "b"]}, "headers": headers}, {"json": {"input": 1}})
    right, wrong = map(json.loads, capsys.readouterr().err.splitlines())
    assert right["id"] == "r1"
    assert (right["route"], right["model"], right["status"], right["items"]) == (
        "/v1/embeddings",
        "m",
        200,
        2,
    )
    assert right["trace"] == PARENT.split("-")[1]
    assert (wrong["status"], wrong["model"]) == (400, "m")


def test_tokenizers_stay_in_memory_until_their_file_changes(tmp_path: Path) -> None:
    file = tiny.tokenizer(tmp_path / "tokenizer.json")
    gate = gateway()

    def read() -> list[Any]:
        rules = [TextRules(file=file, max_length=8) for _ in range(2)]
        fresh = [replace(SERVED, name=name, rules=each) for name, each in zip("ab", rules, strict=True)]
        gate.catalogue = Catalogue(gate._with_old_tokenizers(fresh).values())
        return [each.rules.tokenizer for each in gate.catalogue]

    first, second = read(), read()
    assert all(one is other for one, other in zip(first, second, strict=True))
    os.utime(file, ns=(1, 1))
    third = read()
    assert not any(one is other for one, other in zip(first, third, strict=True))
