"""Which requests of the gateway are traced, what Triton is handed, and the span that is sent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import receiver
from tests.support.receiver import Receiver, Span
from tests.unit.run.gateway.test_app import ask, gateway
from triton_repo_builder.run.gateway.tracing import Tracer
from triton_repo_builder.runtime import spans

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def headers(flags: str, **more: str) -> dict[str, str]:
    return {"traceparent": f"00-{TRACE}-{PARENT}-{flags}", **more}


def traced(remote: Receiver, *requests: dict[str, Any], **options: Any) -> tuple[list[Span], list[Any]]:
    """The spans of the requests, and the metadata of the calls to Triton."""
    gate = gateway(trace=remote.url, **options)
    ask(gate, *[{"json": {"input": ["a"]}, **each} for each in requests])
    assert gate.tracer is not None
    gate.tracer.close()
    return remote.spans, [call["metadata"] for call in gate.triton.calls]  # type: ignore[attr-defined]


def test_a_request_is_a_span_of_its_clients_trace_and_the_parent_of_tritons() -> None:
    with receiver.running() as remote:
        request = {"headers": headers("01", tracestate="a=b", **{"x-request-id": "r"})}
        (span,), ((own, state),) = traced(remote, request)
    assert own == ("traceparent", f"00-{TRACE}-{span.id}-01") and state == ("tracestate", "a=b")
    assert (span.name, span.parent, span.trace) == ("POST /v1/embeddings", PARENT, TRACE)
    assert (span.service, span.kind, span.failed) == ("trb-gateway", spans.SERVER, False)
    assert span.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/embeddings",
        "http.response.status_code": 200,
        "trb.request_id": "r",
        "gen_ai.request.model": "m",
        "gen_ai.operation.name": "embeddings",
    }


def test_what_its_client_does_not_sample_is_traced_nowhere() -> None:
    with receiver.running() as remote:
        assert traced(remote, {"headers": headers("00")}) == ([], [()])


def test_one_of_n_requests_without_a_trace_is_traced() -> None:
    with receiver.running() as remote:
        sent, handed = traced(remote, *[{}] * 5, {"headers": headers("01")}, trace_rate=2)
    assert len(sent) == 4 and [bool(each) for each in handed] == [True, False, True, False, True, True]
    assert [span.parent for span in sent] == ["", "", "", PARENT]
    assert len({span.trace for span in sent}) == 4


def test_with_rate_0_only_clients_decide() -> None:
    with receiver.running() as remote:
        sent, _ = traced(remote, {}, {"headers": headers("01")}, trace_rate=0)
    assert [span.parent for span in sent] == [PARENT]


def test_failures_are_marked_and_pages_are_not_traced() -> None:
    with receiver.running() as remote:
        gate = gateway(trace=remote.url)
        gate.triton.before = fail  # type: ignore[attr-defined]
        ask(gate, {"json": {"input": "a"}}, {"json": {"input": 1}}, {"method": "GET", "url": "/health"})
        assert gate.tracer is not None
        gate.tracer.close()
    assert [(span.attributes["http.response.status_code"], span.failed) for span in remote.spans] == [
        (500, True),
        (400, False),
    ]


async def fail() -> None:
    raise ZeroDivisionError


def test_a_receiver_that_is_away_costs_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    gate = gateway(trace="http://127.0.0.1:1/v1/traces")
    answers = ask(gate, *[{"json": {"input": "a"}}] * 3)
    assert isinstance(gate.tracer, Tracer)
    gate.tracer.close()
    assert [answer.status_code for answer in answers] == [200] * 3
    assert capsys.readouterr().err.count("no spans reach http://127.0.0.1:1/v1/traces") == 1
