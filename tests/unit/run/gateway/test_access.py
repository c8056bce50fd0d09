"""Ids, traces and lines of the log."""

from __future__ import annotations

import json

import pytest

from triton_repo_builder.run.gateway.access import GONE, Access, Log, request_id, trace

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_clients_id_is_kept() -> None:
    assert request_id({b"x-request-id": b"req_a.b:1/2"}) == "req_a.b:1/2"


@pytest.mark.parametrize("stated", [b"", b"a b", b"a\x1b[31m", b"\xff", b"x" * 129, b"a\nb"])
def test_an_id_that_fits_no_header_and_no_log_is_replaced(stated: bytes) -> None:
    fresh = request_id({b"x-request-id": stated})
    assert len(fresh) == 32
    assert fresh != request_id({b"x-request-id": stated})


def test_a_valid_trace_is_handed_on_unchanged() -> None:
    assert trace({}) == ()
    assert trace({b"traceparent": PARENT}) == (("traceparent", PARENT.decode()),)
    both = trace({b"traceparent": PARENT, b"tracestate": b"vendor=1,other=2"})
    assert both == (("traceparent", PARENT.decode()), ("tracestate", "vendor=1,other=2"))


@pytest.mark.parametrize(
    "parent",
    [
        b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        b"ff" + PARENT[2:],
        PARENT.upper(),
        PARENT[:-1],
        PARENT + b"\r\nx: y",
        PARENT + b"\xff",
    ],
)
def test_an_invalid_trace_is_dropped(parent: bytes) -> None:
    assert trace({b"traceparent": parent, b"tracestate": b"a=1"}) == ()


def test_an_invalid_state_does_not_cost_the_trace() -> None:
    assert len(trace({b"traceparent": PARENT, b"tracestate": b"\xff"})) == 1


def test_a_line_of_json_for_each_request(capsys: pytest.CaptureFixture[str]) -> None:
    Log("json").request(Access(id="r1", path="/v1/embeddings", owner="team", status=GONE))
    line = json.loads(capsys.readouterr().err)
    assert line["id"] == "r1"
    assert line["route"] == "/v1/embeddings"
    assert line["owner"] == "team"
    assert line["gone"] is True
    assert {"time", "model", "status", "items", "tokens", "ms", "infer_ms", "trace"} <= line.keys()


def test_only_failures_are_written_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log("none")
    for status in (200, 404, 429, GONE):
        log.request(Access(id="r1", status=status))
    assert capsys.readouterr().err == ""
    log.request(Access(id="r2", path="/rerank", status=503))
    assert "id=r2 route=/rerank status=503" in capsys.readouterr().err


def test_warnings_are_written_in_the_format(capsys: pytest.CaptureFixture[str]) -> None:
    Log("text").warning("keys")
    assert capsys.readouterr().err == "warning: keys\n"
    Log("json").warning("keys")
    assert json.loads(capsys.readouterr().err)["message"] == "keys"
