"""Numbers of our Python models on the metrics page of a real server, after texts whose numbers are known."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from tests.support.servers import free
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient, RequestFailed, statistics
from triton_repo_builder.run.client.codec import encode_binary

pytestmark = pytest.mark.server
SERIES = re.compile(r"^(trb_\w+)\{(.*)\} (\S+)$", re.MULTILINE)
LABELS = [f"label {number}" for number in range(60)]


@pytest.fixture(scope="module")
def server(task_exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    root = tmp_path_factory.mktemp("metrics")
    repository = root / "repository"
    options: dict[str, Any] = {"max_length": 5, "tokenizer_cache": 100, "max_text_bytes": 100}
    tiny.put(tiny.embedder(root / "bert"), repository, warmup=False, **options)
    tiny.put(tiny.embedder(root / "silent"), repository, metrics="off")
    tiny.put(task_exported / "nli", repository, name="shot", task="zero-shot-classification", warmup=False)
    with serve.start(repository, free()) as running:
        yield running


def page(server: Any, model: str) -> dict[str, float]:
    """The series of a model that are not 0, without the labels that all have."""
    text, problem = statistics.read_metrics(server.urls.metrics)
    assert not problem
    common = re.compile(f',?model="{model}"|,?version="1"')
    return {
        f"{name}{{{rest}}}" if (rest := common.sub("", labels).strip(",")) else name: float(value)
        for name, labels, value in SERIES.findall(text)
        if f'model="{model}"' in labels and float(value)
    }


def settled(server: Any, model: str) -> dict[str, float]:
    """The page once it stays as it is: numbers arrive up to a second late."""
    seen: dict[str, float] = {}
    while (now := page(server, model)) != seen or not now:
        seen = now
        time.sleep(1.5)
    return seen


def ask(server: Any, endpoint: str, **texts: list[str] | list[bytes]) -> None:
    arrays = {
        name: np.array([[text if isinstance(text, bytes) else text.encode()] for text in rows], dtype=object)
        for name, rows in texts.items()
    }
    HttpClient(server.urls.http, 30.0).infer(endpoint, encode_binary(arrays))


def test_texts_of_known_numbers(server: Any) -> None:
    ask(server, "bert", TEXT=["a", "the 🗼 fox", ""])
    ask(server, "bert", TEXT=["a", "hello the fox a b c"])
    for bad in (b"\xff", b"a " * 100):
        with pytest.raises(RequestFailed):
            ask(server, "bert", TEXT=[bad])
    numbers = settled(server, "bert_tokenizer")
    # In tokens: 3, 5, 2; 3, and 8 that become 5.
    wide = {f'trb_text_tokens_bucket{{le="{4 << power}"}}': 5 for power in range(1, 12)}
    rows = {f'trb_batch_rows_bucket{{le="{1 << power}"}}': 2 for power in range(2, 9)}
    phases = {series: numbers.pop(series) for series in sorted(numbers) if "phase" in series}
    assert numbers == {
        "trb_texts_total": 5,
        "trb_tokens_total": 18,
        "trb_unknown_tokens_total": 1,
        "trb_truncated_texts_total": 1,
        'trb_refused_texts_total{reason="not_utf8"}': 1,
        'trb_refused_texts_total{reason="too_long"}': 1,
        "trb_token_cache_hits_total": 1,
        "trb_token_cache_misses_total": 4,
        'trb_text_tokens_bucket{le="4"}': 3,
        **wide,
        'trb_text_tokens_bucket{le="+Inf"}': 5,
        "trb_text_tokens_sum": 18,
        "trb_text_tokens_count": 5,
        'trb_batch_rows_bucket{le="2"}': 1,
        **rows,
        'trb_batch_rows_bucket{le="+Inf"}': 2,
        "trb_batch_rows_sum": 5,
        "trb_batch_rows_count": 2,
    }
    for phase in ("tokenize", "write"):
        assert phases[f'trb_phase_seconds_count{{phase="{phase}"}}'] == 4
        assert 0 < phases[f'trb_phase_seconds_sum{{phase="{phase}"}}'] < 4


def test_labels_beyond_the_most_are_other(server: Any) -> None:
    for first in range(0, len(LABELS), 20):
        labels = LABELS[first : first + 20]
        ask(server, "shot", TEXT=["a text"] * len(labels), LABELS=labels)
    numbers = settled(server, "shot_postprocess")
    answers = {series: count for series, count in numbers.items() if series.startswith("trb_answers_total")}
    expected = {f'trb_answers_total{{label="{label}"}}': 1 for label in LABELS[:50]}
    assert answers == expected | {'trb_answers_total{label="other"}': 10}
    assert numbers["trb_answer_confidence_count"] == numbers["trb_batch_rows_sum"] == 60
    assert numbers['trb_phase_seconds_count{phase="answer"}'] == 3


def test_nothing_is_counted_where_it_is_off(server: Any) -> None:
    ask(server, "silent", TEXT=["a"])
    time.sleep(1.5)
    assert page(server, "silent_tokenizer") == {}
