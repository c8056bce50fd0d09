"""``trb build --max-queue-size``: a full queue refuses at once, in Triton's words and the gateway's.

``--priority-levels``: who goes first in a queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import httpx
import pytest

from tests.support.cli import call, in_folder
from tests.support.serve_repository import serve
from triton_repo_builder.produce.write.versions import read_config

pytestmark = pytest.mark.server
CLIENTS = 24
TEXTS = ["a text of some words that is asked again and again " * 20] * 32
"""They fill a batch: the others wait."""
LIMITS = {"default_timeout_microseconds": 10_000_000, "max_queue_size": 1}


def built(exported: Path, root: Path, *options: str) -> Path:
    given = ("--name=narrow", "--instances=1", *options)
    done = call("build", "--model", str(exported / "minilm_fp32"), "-o", str(root), *given)
    assert done.returncode == 0, done.stderr
    return root


def at_once(ask: Callable[[], httpx.Response]) -> list[httpx.Response]:
    with ThreadPoolExecutor(CLIENTS) as pool:
        return [each.result() for each in [pool.submit(ask) for _ in range(CLIENTS)]]


def test_what_finds_the_queue_full_is_refused(tmp_path: Path, exported: Path) -> None:
    limits = ("--max-queue-size=1", "--queue-timeout=10s")
    repository = built(exported, tmp_path / "repository", *limits)
    for model in ("narrow_tokenizer", "narrow_model"):
        block = read_config(repository / model / "config.pbtxt").dynamic_batching
        assert block is not None and block["default_queue_policy"] == LIMITS
    with serve(tmp_path, repository, "--openai", "--openai-port=0", "--json") as running:
        urls = running.ready()["urls"]
        tensor = {"name": "TEXT", "datatype": "BYTES", "shape": [len(TEXTS), 1], "data": TEXTS}
        infer, openai = f"{urls['http']}/v2/models/narrow/infer", f"{urls['openai']}/v1/embeddings"
        answers = at_once(lambda: httpx.post(infer, json={"inputs": [tensor]}, timeout=120))
        assert {answer.is_success for answer in answers} == {True, False}
        refused = [answer.json()["error"] for answer in answers if not answer.is_success]
        assert all(error.endswith("Exceeds maximum queue size") for error in refused)

        given = {"model": "narrow", "input": TEXTS}
        answers = at_once(lambda: httpx.post(openai, json=given, timeout=120))
        assert set(Counter(answer.status_code for answer in answers)) == {200, 429}
        error = next(answer for answer in answers if answer.status_code == 429)
        assert error.headers["retry-after"] == "1"
        assert error.json()["error"]["message"].endswith("Exceeds maximum queue size: try again later")

        load = ("--concurrency=16", "--rows=32", "--window=1s", "--max-windows=3", "--warmup=0s")
        done = in_folder(
            tmp_path, "bench", str(repository), "--url", urls["http"], "--grpc-url", urls["grpc"], *load
        )
        assert "Exceeds maximum queue size" in done.stdout + done.stderr
        assert "no connection" not in done.stdout + done.stderr


def test_a_request_of_the_first_level_goes_ahead(tmp_path: Path, exported: Path) -> None:
    repository = built(exported, tmp_path / "repository", "--priority-levels=2")
    bulk = {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [len(TEXTS), 1], "data": TEXTS}]}
    search = {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": TEXTS[:1]}]}
    with serve(tmp_path, repository, "--json") as running, ThreadPoolExecutor(CLIENTS) as pool:
        url = f"{running.ready()['urls']['http']}/v2/models/narrow/infer"
        waiting = [pool.submit(httpx.post, url, json=bulk, timeout=300) for _ in range(CLIENTS)]
        next(as_completed(waiting))
        first = httpx.post(url, json={**search, "parameters": {"priority": 1}}, timeout=300)
        answered = sum(each.done() for each in waiting)
        assert first.is_success and all(each.result().is_success for each in waiting)
    assert answered < CLIENTS / 2
