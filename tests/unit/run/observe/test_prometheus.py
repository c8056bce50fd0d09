from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable
from typing import Any

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client import Answer, HttpClient, NoAnswer
from triton_repo_builder.run.observe import drift, prometheus

URL = "http://prometheus:9090"


def answering(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], bytes], status: int = 200
) -> list[str]:
    """Queries of a Prometheus that answers so."""
    queries: list[str] = []

    def send(self: HttpClient, method: str, path: str, body: Any = None) -> Answer:
        assert (self.url, method) == (URL, "GET")
        queries.append(urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)["query"][0])
        return Answer(status=status, headers={}, data=answer(queries[-1]))

    monkeypatch.setattr(HttpClient, "send", send)
    return queries


def vector(*entries: tuple[dict[str, str], float]) -> bytes:
    result = [{"metric": labels, "value": [1.0, str(value)]} for labels, value in entries]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def test_growth_of_the_window_becomes_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    model = {"model": "bert_tokenizer", "version": "1"}

    def answer(query: str) -> bytes:
        if query.startswith("max by") and "trb_reference_share" in query:
            return vector(({**model, "metric": "text_tokens", "bucket": "8"}, 1))
        if "trb_text_tokens_bucket" in query:
            return vector(({**model, "le": "8.0"}, 149.7), ({**model, "le": "+Inf"}, 149.7))
        return vector()

    queries = answering(monkeypatch, answer)
    [comparison] = drift.compare(prometheus.page(URL, 3600))
    assert (comparison.texts, comparison.verdict) == (150, drift.STABLE_WORD)
    assert "sum by (model, version, le) (increase(trb_text_tokens_bucket[3600000ms]))" in queries


def test_a_prometheus_that_does_not_scrape_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, lambda query: vector())
    with pytest.raises(TrbError) as caught:
        prometheus.page(URL, 60)
    assert (caught.value.code, caught.value.where) == (Code.NOT_FOUND, URL)
    assert "does it scrape the server's metrics port?" in caught.value.message
    assert "--metrics off" in caught.value.remedy


def test_a_prometheus_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(*_: Any) -> Answer:
        raise NoAnswer("no answer: [Errno 111] Connection refused")

    monkeypatch.setattr(HttpClient, "send", send)
    with pytest.raises(TrbError) as caught:
        prometheus.page(URL, 60)
    assert (caught.value.code, caught.value.where) == (Code.UNREACHABLE, URL)


@pytest.mark.parametrize(
    "data",
    [
        b"<html>Grafana</html>",
        b"[]",
        b'{"status": "success", "data": null}',
        b'{"status": "error", "errorType": "bad_data", "error": "invalid parameter"}',
        b'{"status": "success", "data": {"result": [{"metric": {}, "value": ["x"]}]}}',
    ],
)
def test_other_answers_are_refused(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, lambda query: data, 400)
    with pytest.raises(TrbError) as caught:
        prometheus.page(URL, 60)
    assert (caught.value.code, caught.value.where) == (Code.UNREACHABLE, URL)
