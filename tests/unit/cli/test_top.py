"""``trb top``: which servers, one table, its JSON, and what it says of a server without all numbers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from importlib import util
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jsonschema
import pytest

from tests.support.cli import call, kind
from tests.support.counting_server import CountingServer, running, text_endpoint
from triton_repo_builder.base.errors import Code, Exit
from triton_repo_builder.cli import top
from triton_repo_builder.cli.live import listing
from triton_repo_builder.cli.live.listing import Key, Row
from triton_repo_builder.run.observe import snapshot
from triton_repo_builder.run.serve.background import registry
from triton_repo_builder.run.serve.processes import proc

SCHEMA = Path(__file__).resolve().parents[3] / "docs" / "schema" / "top.schema.json"
QUICK = ("--once", "--interval", "0.2")
STEPS = ("bert_tokenizer", "bert_model")


@pytest.fixture
def server() -> Iterator[CountingServer]:
    with running(text_endpoint()) as each:
        yield each


def document(text: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(text)
    jsonschema.validate(parsed, json.loads(SCHEMA.read_text()))
    return parsed


def test_one_table_has_the_endpoint_and_no_column_that_nothing_fills(server: CountingServer) -> None:
    done = call("top", server.urls.http, "--metrics-url", server.urls.metrics, *QUICK)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Triton 2.51.0" in done.stdout
    assert "bert" in done.stdout
    assert "bert_model" not in done.stdout
    assert "mean ms" in done.stdout
    assert not any(title in done.stdout for title in ("p50", "tokens/text", "top labels", "server", "\x1b"))


def test_json_follows_its_schema(server: CountingServer) -> None:
    server.lines = ['nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5']
    done = call("top", server.urls.http, "--metrics-url", server.urls.metrics, *QUICK, "--json")
    (each,) = document(done.stdout)["servers"]
    (endpoint,) = each["endpoints"]
    assert (each["state"], endpoint["endpoint"], endpoint["requests"]) == ("ready", "bert", 0)
    assert endpoint["latency_ms"] == {"mean": None, "p50": None, "p99": None}
    assert [model["model"] for model in endpoint["models"]] == ["bert", "bert_tokenizer", "bert_model"]


def test_a_server_without_metrics_keeps_its_table_and_says_what_is_missing(server: CountingServer) -> None:
    server.status["/metrics"] = 404
    done = call("top", server.urls.http, "--metrics-url", server.urls.metrics, *QUICK)
    assert done.returncode == 0
    assert "bert" in done.stdout
    assert server.urls.metrics in done.stderr
    assert "--metrics-url" in done.stderr


def test_the_page_at_port_plus_2_is_tried_and_named(server: CountingServer) -> None:
    done = call("top", server.urls.http, *QUICK)
    assert f"http://127.0.0.1:{server.port + 2}/metrics" in done.stderr


def test_a_model_that_failed_is_a_row_with_its_reason(server: CountingServer) -> None:
    broken = server.add("broken")
    broken.state, broken.reason = "UNAVAILABLE", "Internal: no such file"
    done = call("top", server.urls.http, "--metrics-url", server.urls.metrics, *QUICK)
    assert "unavailable" in done.stdout
    assert "Internal: no such file" in done.stderr


def test_one_of_two_servers_is_away(server: CountingServer) -> None:
    away = "http://127.0.0.1:1"
    done = call("top", server.urls.http, away, "--metrics-url", server.urls.metrics, *QUICK, "--json")
    assert [each["state"] for each in document(done.stdout)["servers"]] == ["ready", "away"]
    done = call("top", server.urls.http, away, "--metrics-url", server.urls.metrics, *QUICK)
    assert "127.0.0.1:1: away: " in done.stdout
    assert f"127.0.0.1:{server.port}" in done.stdout.splitlines()[-2], "the row names its server"


@pytest.mark.parametrize("urls", [["http://127.0.0.1:1"], ["http://127.0.0.1:1", "127.0.0.1:2"]])
def test_no_server_that_answers_is_an_error(urls: list[str]) -> None:
    done = call("top", *urls, *QUICK)
    assert kind(done.stderr) is Code.UNREACHABLE
    assert done.stdout == ""


def test_a_port_of_something_else_is_an_error(server: CountingServer) -> None:
    server.status["/v2"] = 404
    assert kind(call("top", server.urls.http, *QUICK).stderr) is Code.UNREACHABLE


@pytest.mark.parametrize(("command", "words"), [("top", "not a Triton: 404"), ("provenance", "404")])
def test_an_answer_of_something_else_keeps_the_message_on_one_line(
    server: CountingServer, command: str, words: str
) -> None:
    options = (server.urls.http, *QUICK) if command == "top" else ("--url", server.urls.http)
    refused = (404, "404 page not found\n")
    with patch.object(server, "answer", return_value=refused):
        message, remedy = call(command, *options).stderr.splitlines()
    assert f"{words}: page not found" in message
    assert message.endswith(" [unreachable]")
    assert remedy.startswith("  fix: ")


def test_one_table_that_is_piped_keeps_each_row_on_one_line(server: CountingServer) -> None:
    for place in range(3):
        server.add(f"model_{place}_{'x' * 40}")
    page = ("--metrics-url", server.urls.metrics)
    done = call("top", server.urls.http, *page, *QUICK, env={"COLUMNS": "40"})
    facts, *lines = (line for line in done.stdout.splitlines() if line.strip())
    assert "Triton" in facts
    assert lines[0].split()[:5] == ["endpoint", "version", "req/s", "mean", "ms"]
    assert sorted(line.split()[0] for line in lines[2:]) == sorted({*server.models} - set(STEPS))


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], None]:
    """Notes a server in the background with these addresses of HTTP and metrics."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    pid = os.getpid()

    def note(http: str, metrics: str) -> None:
        urls = {"http": http, "grpc": "127.0.0.1:1", "metrics": metrics}
        entry = registry.Background(
            pid=pid, born=proc.start_time(pid), name="a", repository="/a", engine="embedded", server_pid=None,
            urls=urls, log="", started=0.0,
        )  # fmt: skip
        registry.write(registry.folder() / "a.json", entry)

    return note


@pytest.mark.parametrize("urls", [True, False])
def test_metrics_at_another_port_after_a_restart_are_found_again(
    server: CountingServer,
    background: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    urls: bool,
) -> None:
    monkeypatch.setattr(snapshot, "LOCATE_AGE", 0.0)
    away = "http://127.0.0.1:1/metrics"
    background(server.urls.http, away)
    (observer,) = top._servers((server.urls.http,) if urls else (), ()).values()
    (pinned,) = top._servers((server.urls.http,), (away,)).values()
    assert observer.take().metrics_problem.startswith(away)
    background(server.urls.http, server.urls.metrics)
    assert observer.take().samples
    assert pinned.take().metrics_problem.startswith(away), "the page that the user named"


def test_drift_words_the_metrics_page_as_top_does() -> None:
    for command in ("top", "drift"):
        page = " ".join(call(command, "--help").stdout.split())
        assert "[default: of what 'trb serve' started there, else the URL's port + 2]" in page


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json"],
        ["--metrics-url", "http://127.0.0.1:1/metrics", "--once"],
        ["ftp://127.0.0.1", "--once"],
        ["--interval", "0", "--once"],
        [],  # no terminal
    ],
)
def test_misuse(arguments: list[str]) -> None:
    done = call("top", *arguments)
    assert done.returncode == Exit.USAGE
    assert kind(done.stderr) is Code.USAGE


def test_without_textual_the_live_view_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "find_spec", lambda name: None)
    for stream in ("stdout", "stdin"):
        monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: True, raising=False)
    with pytest.raises(top.TrbError) as caught:
        top._check_terminal()
    assert caught.value.code is Code.ENGINE_MISSING
    assert "triton_repo_builder[top]" in caught.value.remedy


def test_one_table_needs_no_textual(server: CountingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert util.find_spec("textual")
    for name in [name for name in sys.modules if name.split(".")[0] == "textual"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    assert call("top", server.urls.http, *QUICK).returncode == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (0.001, "<0.01"),
        (0.254, "0.25"),
        (9.996, "10.0"),
        (12.34, "12.3"),
        (99.96, "100"),
        (1234.5, "1,234"),
    ],
)
def test_numbers_have_three_digits(value: float | None, text: str) -> None:
    assert listing.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0 %"), (0.0004, "<0.1 %"), (0.0411, "4.1 %"), (0.0999, "10 %"), (1.0, "100 %")],
)
def test_shares_are_per_cent(value: float | None, text: str) -> None:
    assert listing.share(value) == text


def test_rows_without_a_value_come_last_in_both_directions() -> None:
    rows = [Row(key=Key("s", name, "1"), state="ready") for name in ("b", "a")]
    for descending in (True, False):
        assert [row.key.endpoint for row in listing.ordered(rows, "mean_ms", descending=descending)] == [
            "a",
            "b",
        ]
    listed = listing.ordered(rows, "endpoint", descending=True)
    assert [row.key.endpoint for row in listed] == ["b", "a"]


def test_versions_are_numbers() -> None:
    rows = [Row(key=Key("s", "a", version), state="ready") for version in ("10", "9", "2")]
    for by in ("version", "endpoint"):
        listed = listing.ordered(rows, by, descending=False)
        assert [row.key.version for row in listed] == ["2", "9", "10"]


def test_a_filter_looks_for_each_word_in_all_texts() -> None:
    rows = [
        Row(key=Key("gpu-1:8000", "bert", "1"), state="ready"),
        Row(key=Key("gpu-2:8000", "bert", "2"), state="unavailable", reason="Internal: no such file"),
    ]
    assert len(listing.matching(rows, "")) == 2
    assert listing.matching(rows, "BERT gpu-2") == rows[1:]
    assert listing.matching(rows, "no such") == rows[1:]
    assert listing.matching(rows, "gpu-1 gpu-2") == []
