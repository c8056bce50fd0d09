"""``trb gateway --shadow`` on a real server: two versions that differ, and a second server."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import tiny_images
import tiny_sounds

from tests.support import versions_apart
from tests.support.cli import ARGV, in_folder, own
from tests.support.serve_repository import until
from tests.support.servers import free
from triton_repo_builder.run import serve
from triton_repo_builder.run.gateway.shadow import SAME_STEPS

pytestmark = [pytest.mark.server, pytest.mark.gateway]
COUNTS = ("compared", "dropped", "failed")


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serve.RunningServer]:
    """A server whose only endpoint has two versions."""
    repository = versions_apart.make(tmp_path_factory.mktemp("apart") / "repository")
    with serve.start(repository, free()) as server:
        yield server


@contextmanager
def running(tmp: Path, triton: str, *arguments: str) -> Iterator[str]:
    """The URL of a gateway in a process of its own."""
    (tmp / "tmp").mkdir(exist_ok=True)
    out, err = tmp / "stdout", tmp / "stderr"
    argv = [*ARGV, "gateway", "--url", triton, "--port", "0", "--json", *arguments]
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(argv, stdout=stdout, stderr=stderr, env={**os.environ, **own(tmp)})
    try:
        until(lambda: out.read_text().endswith("\n") or process.poll() is not None)
        assert process.poll() is None, err.read_text()
        yield str(json.loads(out.read_text())["url"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def embed(url: str, *texts: str) -> float:
    """Seconds until the right answer of version 2, which is the newest."""
    began = time.perf_counter()
    answer = httpx.post(f"{url}/v1/embeddings", json={"model": "apart", "input": list(texts)}, timeout=30)
    seconds = time.perf_counter() - began
    assert [item["embedding"] for item in answer.json()["data"]] == [[1.0, 0.0]] * len(texts)
    return seconds


def entry(url: str, copies: int) -> dict[str, Any]:
    """The shadow's report about the endpoint, once so many copies were compared."""
    until(lambda: [e for e in httpx.get(f"{url}/shadow").json()["endpoints"] if e["compared"] >= copies])
    report: dict[str, Any] = httpx.get(f"{url}/shadow").json()["endpoints"][0]
    return report


def test_the_counts_of_agreement_are_right(apart: serve.RunningServer, tmp_path: Path) -> None:
    with running(tmp_path, apart.urls.grpc, "--shadow", "1", "--share", "100%") as url:
        embed(url, "one", "two", "other three")
        embed(url, "other")
        embed(url, *["same"] * 9)  # more than max_batch_size: two parts
        report = entry(url, 3)
        assert (report["compared"], report["dropped"], report["failed"]) == (3, 0, 0)
        assert (report["answers"], report["same"]) == (13, 11)
        assert (report["mean"], report["worst"]) == (pytest.approx(11 / 13), 0.0)
        assert report["shadow_ms"]["p50"] >= 1000 * versions_apart.SLOW > report["primary_ms"]["p50"]
        done = in_folder(tmp_path, "gateway", "status", url)
        assert done.returncode == 0, done.stderr
        assert "shadow: version 1" in done.stdout and "84.62 %" in done.stdout
        listed = in_folder(tmp_path, "gateway", "status", url, "--json")
        assert json.loads(listed.stdout)["endpoints"][0]["same"] == 11


def test_answers_take_as_long_as_without_a_shadow(apart: serve.RunningServer, tmp_path: Path) -> None:
    """In turns, so that both meet the same load of the machine."""
    folders = [tmp_path / "alone", tmp_path / "shadowed"]
    for folder in folders:
        folder.mkdir()
    shadow = ("--shadow", "1", "--share", "1")
    with running(folders[0], apart.urls.grpc) as plain, running(folders[1], apart.urls.grpc, *shadow) as url:
        pairs = [(embed(plain, f"text {number}"), embed(url, f"text {number}")) for number in range(60)]
        alone, shadowed = (statistics.median(times) for times in zip(*pairs, strict=True))
        assert shadowed < alone + versions_apart.SLOW / 3
        until(lambda: sum(httpx.get(f"{url}/shadow").json()["endpoints"][0][k] for k in COUNTS) == len(pairs))


def test_a_second_server_and_one_that_is_not_there(apart: serve.RunningServer, tmp_path: Path) -> None:
    second = apart.urls.grpc.replace("127.0.0.1", "127.1")  # the same server by a name that hides it
    with running(tmp_path, apart.urls.grpc, "--shadow", second, "--share", "1") as url:
        embed(url, "one", "other")
        report = entry(url, 1)
        assert (report["same"], report["answers"]) == (2, 2)
    with running(tmp_path, apart.urls.grpc, "--shadow", "127.0.0.1:1", "--share", "1") as url:
        embed(url, "one")
        until(lambda: [e for e in httpx.get(f"{url}/shadow").json()["endpoints"] if e["failed"]])
        assert "not available" in httpx.get(f"{url}/shadow").json()["endpoints"][0]["last_failure"]


def test_a_version_of_an_ensemble_is_not_compared_with_itself(
    server: serve.RunningServer, tmp_path: Path
) -> None:
    with running(tmp_path, server.urls.grpc, "--shadow", "1", "--share", "1") as url:
        assert httpx.post(f"{url}/v1/embeddings", json={"model": "minilm", "input": "a"}).is_success
        until(lambda: [each for each in httpx.get(f"{url}/shadow").json()["endpoints"] if each["failed"]])
        (report,) = httpx.get(f"{url}/shadow").json()["endpoints"]
        assert (report["compared"], report["failed"], report["last_failure"]) == (0, 1, SAME_STEPS)


REQUESTS: tuple[tuple[str, str, Any], ...] = (
    ("minilm", "/v1/embeddings", {"input": ["a", "b c"] * 20}),
    ("rerank", "/v2/rerank", {"query": "guitar", "documents": ["music", "rain", "a guitar"]}),
    ("sentiment", "/v1/classify", {"input": ["a great film", "bad"]}),
    ("ner", "/models/ner", {"inputs": "Anna lives in Berlin."}),
    ("qa", "/models/qa", {"inputs": {"question": "Where?", "context": "Anna lives in Berlin."}}),
    ("mask", "/models/mask", {"inputs": "Paris [MASK] in [MASK]."}),
    ("nli", "/models/nli", {"inputs": "Anna", "parameters": {"candidate_labels": ["sport", "food"]}}),
    ("splade", "/embed_sparse", {"inputs": ["Anna lives in Berlin.", "x"]}),
    ("colbert", "/embed_all", {"inputs": ["Anna lives in Berlin.", "x"]}),
    ("vit", "/models/vit", tiny_images.file(40, 30)),
    ("clip_image", "/models/clip_image", tiny_images.file(40, 30)),
    ("yolos", "/models/yolos", tiny_images.file(40, 30)),
    ("segformer", "/models/segformer", tiny_images.file(40, 30)),
    ("speech", "/models/speech", tiny_sounds.wav(tiny_sounds.noise(8000))),
    ("sounds", "/models/sounds", tiny_sounds.wav(tiny_sounds.noise(8000))),
)


def test_answers_of_every_task_are_compared(
    server: serve.RunningServer, repository: Path, tmp_path: Path
) -> None:
    """The shadow is the same server by another name: every answer agrees."""
    second = server.urls.grpc.replace("127.0.0.1", "127.1")
    arguments = ("--repo", str(repository), "--shadow", second, "--share", "100%")
    with running(tmp_path, server.urls.grpc, *arguments) as url:
        for name, path, body in REQUESTS:
            kind = {"content": body} if isinstance(body, bytes) else {"json": {"model": name, **body}}
            answer = httpx.post(f"{url}{path}", **kind, timeout=60)
            assert answer.status_code == 200, answer.text

        def entries() -> list[dict[str, Any]]:
            listed: list[dict[str, Any]] = httpx.get(f"{url}/shadow").json()["endpoints"]
            return listed

        until(lambda: sum(one["compared"] + one["failed"] for one in entries()) == len(REQUESTS))
        assert [one["last_failure"] for one in entries()] == [None] * len(REQUESTS)
        for one in entries():
            assert one["answers"] and one["same"] == one["answers"], one
            assert one["worst"] in (None, pytest.approx(1.0 if one["measure"] == "cosine" else 0.0, abs=1e-5))


def test_status_of_a_gateway_without_a_shadow_and_of_none(apart: serve.RunningServer, tmp_path: Path) -> None:
    with running(tmp_path, apart.urls.grpc) as url:
        done = in_folder(tmp_path, "gateway", "status", url)
        assert done.returncode == 0 and "no shadow" in done.stdout
    assert in_folder(tmp_path, "gateway", "status", url).returncode == 7
    assert in_folder(tmp_path, "gateway", "status", apart.urls.http).returncode == 7
