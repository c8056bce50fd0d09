"""One request, one trace: client, gateway, the ensemble and its steps, and what happens inside our models."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import tiny

from tests.support import gateways, receiver
from tests.support.receiver import Receiver, Span
from tests.support.serve_repository import until
from tests.support.servers import free
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.run import serve

pytestmark = pytest.mark.server
PARENT = "b7ad6b7169203331"
TEXT = {"inputs": "Angela Merkel lives in Berlin"}
TREE = {
    "POST /models/*": "",
    "InferRequest": "POST /models/*",
    "ner": "InferRequest",
    "ner_tokenizer": "ner",
    "ner_model": "ner",
    "ner_postprocess": "ner",
    "tokenize": "ner_tokenizer",
    "write": "ner_tokenizer",
    "answer": "ner_postprocess",
}
"""Spans and their parents; below each step is Triton's ``compute``, too."""


class Running:
    """A server and a gateway that send their spans to a receiver."""

    def __init__(self, server: serve.RunningServer, gateway: str, remote: Receiver) -> None:
        self.server, self.gateway, self.remote = server, gateway, remote

    def ask(self, **headers: str) -> requests.Response:
        return requests.post(f"{self.gateway}/models/ner", json=TEXT, headers=headers, timeout=60)

    def traced(self) -> list[Span]:
        """The spans of a request that its client traces.

        Triton misses some ``traceparent`` over gRPC: it reads the header up to a NUL that may not be there
        (``GrpcServerCarrier``). Then another request is sent.
        """
        for number in range(1, 6):
            trace = f"{number:032x}"
            answer = self.ask(traceparent=f"00-{trace}-{PARENT}-01", tracestate="a=b")
            assert answer.status_code == 200 and answer.json()
            with suppress(AssertionError):
                until(lambda trace=trace: len(self.remote.trace(trace)) >= len(TREE) + 3, 10)  # type: ignore[misc]
                return self.remote.trace(trace)
        raise AssertionError("no request was traced")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("traces")
    tiny.put(gateways.MODELS / "tasks" / "ner", folder / "repository", name="ner", instances=1)
    with receiver.running() as remote:
        options = free(trace=remote.url, trace_rate=0, log_json=True, log_file=folder / "log")
        with (
            serve.start(folder / "repository", options) as server,
            gateways.running(folder, server.urls.grpc, "--trace", remote.url, "--trace-rate", "2") as url,
        ):
            yield Running(server, url, remote)


def below(spans: list[Span], parent: str) -> dict[str, str]:
    """Names of spans, each with its parent's; those of ``compute`` with the step's before."""
    names = {span.id: span.name for span in spans}
    assert [span.name for span in spans if span.parent == parent] == ["POST /models/*"]
    return {
        span.name: names.get(span.parent, "")
        for span in spans
        if span.name != "compute" or names[span.parent] not in TREE
    }


def test_a_request_is_one_trace_below_its_clients_span(running: Running) -> None:
    spans = running.traced()
    assert below(spans, PARENT) == TREE
    assert sorted(span.name for span in spans).count("compute") == 3
    by_id = {span.id: span for span in spans}
    slack = 2_000_000  # Triton counts nanoseconds of another clock
    for span in spans:
        assert span.begun <= span.ended
        if span.parent != PARENT:
            outer = by_id[span.parent]
            assert outer.begun - slack <= span.begun, span
            # Triton ends its own when it frees the request, perhaps after the client has its answer.
            assert span.scope != "trb" or span.ended <= outer.ended + slack, span
    services = {span.name: span.service for span in spans}
    assert services["POST /models/*"] == "trb-gateway"
    assert {service for name, service in services.items() if name != "POST /models/*"} == {
        "triton-inference-server"
    }
    tokenize = next(span for span in spans if span.name == "tokenize")
    assert tokenize.attributes["trb.texts"] == 1
    assert tokenize.attributes["triton.model_name"] == "ner_tokenizer"


def test_the_rate_is_the_gateways_and_a_client_that_does_not_sample_is_obeyed(running: Running) -> None:
    running.remote.spans.clear()
    for _ in range(12):
        assert running.ask().status_code == 200
    trace = "0af7651916cd43dd8448eb211c80319d"
    assert running.ask(traceparent=f"00-{trace}-{PARENT}-00").status_code == 200
    until(lambda: sum(span.name == "answer" for span in running.remote.spans) >= 4)
    time.sleep(1.5)
    roots = [span for span in running.remote.spans if not span.parent]
    assert [span.name for span in roots] == ["POST /models/*"] * 6
    assert {span.trace for span in running.remote.spans} == {span.trace for span in roots}
    whole = [below(running.remote.trace(root.trace), "") == TREE for root in roots]
    assert sum(whole) >= 4  # see ``traced``


@pytest.mark.slow
def test_a_receiver_that_is_slow_or_away_costs_no_answer(running: Running) -> None:
    trace = "0af7651916cd43dd8448eb211c80319e"
    running.remote.delay, running.remote.status = 3.0, 503
    begun = time.monotonic()
    for _ in range(8):
        assert running.ask(traceparent=f"00-{trace}-{PARENT}-01").status_code == 200
    assert time.monotonic() - begun < 3
    log = running.server.log
    until(lambda: sum("no spans reach" in line for line in log.read_text().splitlines()) == 2, 20)
    running.remote.delay, running.remote.status = 0.0, 200
    until(lambda: sum("again" in line for line in log.read_text().splitlines()) == 2, 20)
    said = [json.loads(line) for line in log.read_text().splitlines()]
    warned = [entry for entry in said if "no spans reach" in entry["message"]]
    assert {(entry["model"], entry["version"], entry["level"]) for entry in warned} == {
        ("ner_tokenizer", "1", "warning"),
        ("ner_postprocess", "1", "warning"),
    }
    # The models' own spans have waited, and arrive; of a request that Triton does not take for traced, none.
    until(lambda: len({span.id for span in running.remote.trace(trace) if span.name == "tokenize"}) >= 6, 20)


def test_every_line_of_the_log_is_an_object(running: Running) -> None:
    entries = [json.loads(line) for line in running.server.log.read_text().splitlines()]
    assert all({"time", "level", "message"} <= {*entry} for entry in entries)
    (table,) = [entry for entry in entries if "| Backend" in entry["message"]]
    assert table["message"].count("\n") >= 3
    loaded: list[Any] = [
        (entry["model"], entry["version"])
        for entry in entries
        if entry["message"].startswith("successfully loaded")
    ]
    assert sorted(loaded) == [
        (name, "1") for name in ("ner", "ner_model", "ner_postprocess", "ner_tokenizer")
    ]


@pytest.mark.slow
def test_a_failure_to_load_is_named_with_its_cause(tmp_path: Path) -> None:
    model = tmp_path / "repository" / "broken" / "1" / "model.py"
    model.parent.mkdir(parents=True)
    model.write_text(
        "class TritonPythonModel:\n    def initialize(self, args):\n        raise ValueError('boom')\n"
    )
    (model.parents[1] / "config.pbtxt").write_text('backend: "python"\nmax_batch_size: 0\n')
    log = tmp_path / "log"
    with pytest.raises(TrbError, match="boom"):
        serve.start(tmp_path / "repository", free(log_json=True, log_file=log))
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    errors = [entry for entry in entries if "boom" in entry["message"] and entry["level"] == "error"]
    assert errors and all("At:\n" in entry["message"] for entry in errors)
    assert {(entry["model"], entry["version"]) for entry in errors} == {("broken", "1")}
