"""``--tokenizer-cache`` and ``--response-cache`` on a real server, and what ``trb bench`` says of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli import trb

from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient, statistics
from triton_repo_builder.run.client.codec import encode_binary

pytestmark = pytest.mark.server
FREE = serve.ServeOptions(http_port=0, grpc_port=0, metrics_port=0)


@pytest.fixture(scope="module")
def server(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    repository = tmp_path_factory.mktemp("caches") / "repository"
    for name, options in (("tokens", ("--tokenizer-cache", "500")), ("answers", ("--response-cache",))):
        model = ("--model", exported / "minilm_fp32", "--name", name, "--output", repository)
        trb("build", *model, "--instances", "1", *options)
    with serve.start(repository, FREE) as running:
        yield running, repository


def ask(server: Any, name: str, *texts: str) -> Any:
    given = np.array([[text.encode()] for text in texts], dtype=object)
    return HttpClient(server.urls.http, 30.0).infer(name, encode_binary({"TEXT": given}))["embedding"]


def tokens(server: Any, name: str) -> tuple[float, float]:
    page, _ = statistics.read_metrics(server.urls.metrics)
    return statistics.token_cache(page, {f"{name}_tokenizer"})


def test_the_hits_of_a_tokenizer_are_on_the_metrics_page(server: tuple[Any, Path]) -> None:
    running, _ = server
    time.sleep(1.5)  # the warm-up's numbers arrive
    before = tokens(running, "tokens")
    first = ask(running, "tokens", "one text", "another text")
    second = ask(running, "tokens", "another text", "one text")
    np.testing.assert_array_equal(first, second[::-1])
    deadline = time.monotonic() + 10  # the model delivers its numbers once a second
    while tokens(running, "tokens") != (before[0] + 2, before[1] + 2):
        assert time.monotonic() < deadline, tokens(running, "tokens")
        time.sleep(0.1)


def test_an_answer_comes_from_the_response_cache(server: tuple[Any, Path]) -> None:
    running, _ = server
    client = HttpClient(running.urls.http, 30.0)
    first = ask(running, "answers", "a text of its own")
    before = statistics.read_or_empty(client)["answers_model"].executions
    np.testing.assert_array_equal(first, ask(running, "answers", "a text of its own"))
    after = statistics.read_or_empty(client)
    assert after["answers_model"].executions == before
    assert after["answers"].cached == 1


@pytest.mark.slow
def test_bench_shows_what_was_found(server: tuple[Any, Path], tmp_path: Path) -> None:
    running, repository = server
    urls = (
        "--url",
        running.urls.http,
        "--grpc-url",
        running.urls.grpc,
        "--metrics-url",
        running.urls.metrics,
    )
    load = ("--concurrency", "4", "--warmup", "1s", "--window", "1s", "--max-windows", "3")
    shares = {}
    for name in ("tokens", "answers"):
        output = tmp_path / name
        command = ("bench", repository, "--endpoint", name, *urls, *load, "--repeat-share", "0.8")
        printed = trb(*command, "--output", output)
        (level,) = json.loads((output / "report.json").read_text())["levels"]
        assert not level["failures"]
        shares[name] = (level["tokenizer_cache"], level["response_cache"])
        assert f"of {'texts found in the tokenizer' if name == 'tokens' else 'requests answered'}" in printed
    assert 0.7 < shares["tokens"][0] < 0.9 and not shares["tokens"][1]
    assert 0.7 < shares["answers"][1] < 0.9 and shares["answers"][0] is None


def test_smoke_passes_with_caches(server: tuple[Any, Path]) -> None:
    running, repository = server
    report = trb("smoke", repository, "--url", running.urls.http, "--grpc-url", running.urls.grpc, "--json")
    assert {check["status"] for check in json.loads(report)["checks"]} <= {"passed", "ok"}
