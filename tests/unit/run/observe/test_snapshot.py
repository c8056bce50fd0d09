"""One look at a server: its endpoints and numbers, and what it keeps to itself."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.counting_server import CountingServer, running, text_endpoint
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client import HttpClient, Urls
from triton_repo_builder.run.observe import snapshot, window
from triton_repo_builder.run.observe.snapshot import AWAY, NO_TRITON, NOT_READY, READY, Observer, take


@pytest.fixture
def server() -> Iterator[CountingServer]:
    with running(text_endpoint()) as each:
        yield each


def test_endpoints_are_the_models_that_no_other_runs(server: CountingServer) -> None:
    server.add("plain", version="9")
    server.add("plain", version="10")
    server.count("bert", 7)
    seen = take(server.urls)
    assert (seen.state, seen.problem, seen.metrics_problem, seen.version) == (READY, "", "", "2.51.0")
    assert seen.endpoints == ("bert", "plain")
    assert seen.versions("plain") == ("9", "10")
    assert seen.steps_of("bert") == ("bert_tokenizer", "bert_model")
    assert seen.members("bert", "1") == (("bert", "1"), ("bert_tokenizer", "1"), ("bert_model", "1"))
    assert seen.counters["bert", "1"].requests == 7
    assert seen.page.total("nv_inference_request_success", model="bert") == 7


def test_a_step_is_the_version_that_the_ensemble_names_else_the_latest(server: CountingServer) -> None:
    server.add("bert_model", version="12")
    server.add("bert_model", version="3")
    assert take(server.urls).members("bert", "1")[2] == ("bert_model", "12")
    server.models["bert"][0].config["ensemble_scheduling"]["step"][1]["model_version"] = 3
    assert take(server.urls).members("bert", "1")[2] == ("bert_model", "3")


def test_a_server_of_this_machine_has_a_process(server: CountingServer) -> None:
    seen = take(server.urls)
    assert seen.pid == os.getpid()
    assert (seen.cpu_seconds or 0) > 0
    assert (seen.memory_bytes or 0) > 1 << 20


def test_a_server_that_is_not_there_is_a_state_and_no_error() -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    seen = take(Urls(http=f"http://127.0.0.1:{port}", grpc="", metrics=""))
    assert (seen.state, seen.answers, seen.counters) == (AWAY, False, {})
    assert "refused" in seen.problem


def test_another_http_server_is_no_triton(server: CountingServer) -> None:
    server.status["/v2"] = 404
    assert take(server.urls).state == NO_TRITON


def test_a_server_that_still_loads_is_not_ready(server: CountingServer) -> None:
    server.ready = False
    seen = take(server.urls)
    assert (seen.state, seen.answers) == (NOT_READY, True)


@pytest.mark.parametrize("hidden", ["/v2/repository/index", "/v2/models/bert/config", "/v2/models/stats"])
def test_a_server_may_keep_things_to_itself(server: CountingServer, hidden: str) -> None:
    server.count("bert_model", 6, rows=2, batch=3, ms=4)
    server.models["bert_model"][0].fail = 2
    server.status[hidden] = 403
    seen = take(server.urls)
    counters = seen.counters["bert_model", "1"]
    assert (counters.requests, counters.rows, counters.executions) == (8, 12, 2)
    assert counters.times["queue"] == (6, 6_000_000)
    assert bool(seen.problem) == (hidden == "/v2/models/stats")
    assert (seen.endpoints == ("bert",)) == ("config" not in hidden)


def test_a_server_that_lists_its_models_for_its_key_only_has_endpoints(
    server: CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: HttpClient) -> None:
        raise TrbError(Code.ADMIN_KEY, "no")

    monkeypatch.setattr(HttpClient, "index", refuse)
    seen = take(server.urls)
    assert (seen.endpoints, seen.index) == (("bert",), ())


@pytest.mark.parametrize(
    ("path", "words"),
    [("/nowhere", "404"), ("/v2", "not a metrics page")],
)
def test_a_metrics_page_that_is_none_is_told_with_its_address(
    server: CountingServer, path: str, words: str
) -> None:
    seen = take(replace(server.urls, metrics=server.urls.http + path))
    assert seen.metrics_problem.startswith(server.urls.http + path)
    assert words in seen.metrics_problem
    assert seen.samples == ()
    assert seen.counters


def test_a_metrics_url_without_a_path_is_the_usual_page(server: CountingServer) -> None:
    assert take(replace(server.urls, metrics=server.urls.http)).samples


def test_the_metrics_page_of_another_server_is_not_used(server: CountingServer) -> None:
    other = CountingServer()
    other.add("stranger")
    with running(other):
        seen = take(replace(server.urls, metrics=other.urls.metrics))
    assert "another server" in seen.metrics_problem
    assert seen.samples == ()


def test_a_metrics_page_that_moved_is_looked_for_every_few_seconds(
    server: CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, old, searches = "http://127.0.0.1:2/metrics", "http://127.0.0.1:1/metrics", 0

    def locate() -> str:
        nonlocal searches
        searches += 1
        return page

    observer = Observer(replace(server.urls, metrics=old), locate=locate)
    assert observer.take().metrics_problem.startswith(old), "the other page does not answer either"
    page = server.urls.metrics
    assert not observer.take().samples
    assert searches == 1
    monkeypatch.setattr(snapshot, "LOCATE_AGE", 0.0)
    seen = [observer.take(), observer.take()]
    assert [(each.metrics_problem, each.urls) for each in seen] == [("", server.urls)] * 2
    assert searches == 2, "no search while the page answers"


@pytest.mark.parametrize(
    "path", ["/v2", "/v2/models/stats", "/v2/repository/index", "/v2/models/bert/config", "/metrics"]
)
@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", "{}", "[5]", '{"model_stats": 5}', '{"model_stats": [{"name": 5}]}'),
        '{"model_stats": [{"name": "a", "batch_stats": [{}]}]}',
        '[{"name": 5}]',
        '{"ensemble_scheduling": {"step": [{"model_name": 5, "model_version": "x"}]}}',
        'nv_inference_request_success{model="a"} NaN',
        'nv_inference_request_success{model="a",version="1"} +Inf',
    ],
)
def test_an_answer_of_another_shape_is_no_traceback(server: CountingServer, path: str, text: str) -> None:
    server.texts[path] = text
    observer = Observer(server.urls)
    window.between(observer.take(), observer.take())


def test_configurations_are_read_again_only_if_a_model_was_loaded_anew(
    server: CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    observer = Observer(server.urls)

    def configs() -> int:
        server.requests.clear()
        observer.take()
        return sum(path.endswith("/config") for path in server.requests)

    server.count("bert", 5)
    assert [configs(), configs()] == [3, 0]
    server.models["bert"][0].success = 0  # loaded again: it counts from 0
    assert [configs(), configs()] == [3, 0]
    server.add("plain")
    assert [configs(), configs()] == [4, 0]
    monkeypatch.setattr(snapshot, "CONFIG_AGE", -1.0)
    assert configs() == 4


def test_a_server_comes_back(server: CountingServer) -> None:
    observer = Observer(server.urls)
    assert observer.take().answers
    server.status["/v2"] = 503
    assert not observer.take().answers
    server.status.clear()
    assert observer.take().endpoints == ("bert",)
