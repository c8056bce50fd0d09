"""``trb drift`` on a real server: the texts of the reference, and others."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli import call, trb

from tests.support import languages
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.codec import encode_binary
from triton_repo_builder.run.observe import snapshot

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def repository(exported: Path, task_exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with a reference of English texts, a zero-shot one with its own, and one without."""
    folder = tmp_path_factory.mktemp("drift")
    (folder / "texts.txt").write_text("\n".join(languages.ENGLISH))
    lines = ({"TEXT": text, "LABELS": ["sports", "weather"]} for text in languages.ENGLISH[:60])
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    zero_shot = ("--task", "zero-shot-classification", "--reference", folder / "pairs.jsonl")
    for name, model, *options in (
        ("texts", exported / "classifier", "--reference", folder / "texts.txt"),
        ("pairs", task_exported / "nli", *zero_shot),
        ("golden", exported / "minilm_fp32"),
    ):
        trb("build", "--model", model, "--name", name, "--output", folder / "repository", *options)
    return folder / "repository"


def send(server: serve.RunningServer, name: str, texts: Sequence[str]) -> None:
    client = HttpClient(server.urls.http, 60)
    for start in range(0, len(texts), 20):
        batch = np.array([[text.encode()] for text in texts[start : start + 20]], dtype=object)
        inputs = {"TEXT": batch}
        if name == "pairs":
            inputs["LABELS"] = np.array([[b"sports", b"weather"]] * len(batch), dtype=object)
        client.infer(name, encode_binary(inputs))


def counted(server: serve.RunningServer, model: str, texts: int, name: str = "trb_texts_total") -> None:
    """Wait until the page shows so many texts: models deliver their numbers once a second."""
    deadline = time.monotonic() + 60
    while True:
        taken = snapshot.take(server.urls)
        total = taken.page.total(name, model=model) or 0
        if total >= texts:
            return
        assert time.monotonic() < deadline, f"{model} counted {total} of {texts} {taken.metrics_problem}"
        time.sleep(0.2)


def verdicts(server: serve.RunningServer, *arguments: str | Path) -> dict[tuple[str, str], dict[str, Any]]:
    urls = ("--url", server.urls.http, "--metrics-url", server.urls.metrics)
    rows = json.loads(trb("drift", *urls, *arguments, "--json"))
    return {(row["endpoints"][0], row["metric"]): row for row in rows}


@pytest.fixture(scope="module")
def asked(server: serve.RunningServer) -> serve.RunningServer:
    """The server after the texts of the reference."""
    send(server, "texts", languages.ENGLISH)
    send(server, "pairs", languages.ENGLISH[:60])
    for name, texts in (("texts", len(languages.ENGLISH)), ("pairs", 2 * 60)):
        counted(server, f"{name}_tokenizer", texts)
    counted(server, "texts_model", len(languages.ENGLISH), "trb_answers_total")
    counted(server, "pairs_postprocess", 60, "trb_answers_total")
    return server


def test_the_texts_of_the_reference_are_stable(asked: serve.RunningServer) -> None:
    rows = verdicts(asked)
    for metric in ("text_tokens", "unknown_tokens"):
        row = rows["texts", metric]
        assert (row["verdict"], row["texts"] >= len(languages.ENGLISH)) == ("stable", True), metric
        assert row["psi"] < 0.05, "the same texts, but for that of the warm-up"
    for metric in ("answers", "answer_confidence"):
        assert rows["texts", metric]["model"] == "texts_model"
        assert (rows["texts", metric]["verdict"], rows["texts", metric]["texts"] >= 420) == ("stable", True)
        assert rows["pairs", metric]["model"] == "pairs_postprocess"
        assert rows["pairs", metric]["psi"] < 0.05
    assert set(rows["pairs", "answers"]["reference"]) == {"sports", "weather"}
    assert rows["golden", "text_tokens"]["verdict"] == "reference too small"


def test_other_languages_within_a_window_drifted(asked: serve.RunningServer) -> None:
    texts = (*languages.JAPANESE, *languages.GERMAN) * 10
    sender = threading.Timer(2, send, (asked, "texts", texts))
    sender.start()
    rows = verdicts(asked, "--for", "9s")
    sender.join()
    for metric in ("text_tokens", "unknown_tokens"):
        within = rows["texts", metric]
        assert (within["verdict"], within["texts"]) == ("drifted", len(texts))
    assert rows["pairs", "text_tokens"]["verdict"] == "too few texts"


def test_fail_and_the_table(asked: serve.RunningServer) -> None:
    counted(asked, "pairs_tokenizer", 2 * 60)
    send(asked, "pairs", languages.LONG * 4)
    counted(asked, "pairs_tokenizer", 2 * (60 + 80))
    done = call("drift", "--url", asked.urls.http, "--metrics-url", asked.urls.metrics, "--fail")
    assert done.returncode == 1
    assert "pairs_tokenizer" in done.stdout
    assert "drifted" in done.stdout


def test_the_shares_on_the_page_are_those_of_the_file(asked: serve.RunningServer, repository: Path) -> None:
    page = snapshot.take(asked.urls).page
    file = json.loads((repository / "texts_tokenizer" / "1" / "reference.json").read_text())
    for metric, stored in file["distributions"].items():
        model = stored.get("model", "texts_tokenizer")
        shares = page.by("bucket", "trb_reference_share", model=model, metric=metric)
        assert shares == pytest.approx(stored["shares"])


def test_references_of_the_repository_are_the_same(asked: serve.RunningServer, repository: Path) -> None:
    served, stored = verdicts(asked), verdicts(asked, "--repo", repository)
    assert {key: row["verdict"] for key, row in served.items()} == {
        key: row["verdict"] for key, row in stored.items()
    }


@pytest.mark.slow
def test_a_damaged_reference_leaves_the_model_without(exported: Path, tmp_path: Path) -> None:
    """The endpoint answers, and its log says why it has no reference."""
    folder = tmp_path / "repository"
    trb("build", "--model", exported / "classifier", "--name", "damaged", "--output", folder)
    (folder / "damaged_tokenizer" / "1" / "reference.json").write_text("{")
    log = tmp_path / "log"
    options = serve.ServeOptions(http_port=0, grpc_port=0, metrics_port=0, log_file=log)
    with serve.start(folder, options) as running:
        send(running, "damaged", languages.GERMAN)
        done = call("drift", "--url", running.urls.http, "--metrics-url", running.urls.metrics)
    assert done.returncode == 4
    assert "reference.json: not exported, it is damaged" in log.read_text(errors="replace")
