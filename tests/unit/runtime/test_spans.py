"""Spans of Python models and of the gateway: what is sent, and what happens if nobody takes it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.support import receiver
from triton_repo_builder.runtime import spans

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Request:
    """A request of Triton's stub with a trace, or one of a release that has none."""

    def __init__(self, flags: str | None) -> None:
        text = None if flags is None else json.dumps({"traceparent": f"00-{TRACE}-{PARENT}-{flags}"})
        self.get_context = lambda: text

    def trace(self) -> Request:
        return self


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "INTERVAL", 0.01)


def until(check: Any) -> None:
    deadline = time.monotonic() + 10
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def steps(monkeypatch: pytest.MonkeyPatch, url: str) -> spans.Steps:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url)
    return spans.Steps({"model_name": "ner_tokenizer", "model_version": "3"})


def test_each_traced_request_gets_the_steps(monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x=y")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    with receiver.running() as remote:
        model = steps(monkeypatch, remote.url)
        end = model.begin([Request("01"), Request("00"), Request(None), object()])
        end("tokenize", texts=7)
        end("write")
        model.close()
    first, second = remote.trace(TRACE)
    assert (first.name, second.name) == ("tokenize", "write")
    assert {first.parent, second.parent} == {PARENT} and first.id != second.id
    assert first.begun <= first.ended <= second.begun <= second.ended
    assert (first.service, first.scope, first.kind) == ("triton-inference-server", "trb", spans.INTERNAL)
    assert first.attributes == {
        "triton.model_name": "ner_tokenizer",
        "triton.model_version": 3,
        "trb.requests": 4,
        "trb.texts": 7,
    }
    assert remote.headers[0]["api-key"] == "a b" and remote.headers[0]["x"] == "y"


def test_nothing_is_done_without_a_receiver_or_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert spans.Steps({}).begin([Request("01")]) is spans.nothing
    assert steps(monkeypatch, "http://127.0.0.1:1/v1/traces").begin([Request("00")]) is spans.nothing
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/")
    assert spans.receiver() == "http://collector:4318/v1/traces"


def test_a_receiver_that_is_away_is_told_of_once_and_gets_what_waited(quick: None) -> None:
    said: list[str] = []
    with receiver.running() as remote:
        remote.status = 503
        sender = spans.Sender(remote.url, "s", "trb", said.append)
        entry = spans.span("x", (TRACE, PARENT), (1, 2), {})
        for _ in range(spans.MOST_SENT + spans.MOST_WAITING + 10):
            sender.add(entry)
        until(lambda: said)
        assert sender.dropped >= 10 and "status 503" in said[0]
        time.sleep(0.1)
        remote.status = 200
        until(lambda: len(said) > 1)
        until(lambda: len(remote.spans) >= spans.MOST_WAITING)
        sender.close()
    assert len(said) == 2 and "again" in said[1]


def test_a_slow_receiver_delays_nothing(quick: None) -> None:
    with receiver.running() as remote:
        remote.delay = 0.5
        sender = spans.Sender(remote.url, "s", "trb", print)
        begun = time.monotonic()
        for _ in range(3):
            sender.add(spans.span("x", (TRACE, PARENT), (1, 2), {}))
            time.sleep(0.02)
        assert time.monotonic() - begun < 0.4
        sender.close(5)
    assert len(remote.spans) == 3


def test_a_message_that_is_refused_is_not_sent_again(quick: None) -> None:
    said: list[str] = []
    with receiver.running() as remote:
        remote.status = 400
        sender = spans.Sender(remote.url, "s", "trb", said.append)
        sender.add(spans.span("x", (TRACE, PARENT), (1, 2), {}))
        sender.close()
    assert sender.dropped == 1 and "status 400" in said[0]
