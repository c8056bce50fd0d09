"""perf_analyzer's command line and CSV; the program itself needs a newer glibc than the tests may ask for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from bench_values import TEXT, target

from triton_repo_builder import process
from triton_repo_builder.bench import payload, perf_analyzer
from triton_repo_builder.bench.options import Options, Shape
from triton_repo_builder.errors import Exit, TrbError
from triton_repo_builder.process import ProcessFailed

CLOSED = Shape(protocol="grpc", mode="closed", concurrency=4)
CSV = (
    "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,"
    "Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency,"
    "Avg latency,request/response,response wait\n"
    "4,200.5,300,1500,2000,100,3000,50,1,6000,7000,8000,9000,6500,1,2\n"
)


def test_argv_of_a_closed_and_an_open_loop() -> None:
    options = Options(rows=2, window=1.5, max_windows=7)
    closed = perf_analyzer.argv(
        "pa", target(TEXT), CLOSED, options, data=Path("d.json"), result=Path("r.csv")
    )
    assert closed == [
        *("pa", "-m", "a model", "-u", "127.0.0.1:2", "-i", "grpc", "-b", "2", "--concurrency-range=4:4"),
        *("--async", "--input-data=d.json", "--measurement-interval=1500", "--max-trials=7"),
        *("--stability-percentage=10", "--percentile=95", "--verbose-csv", "-f", "r.csv"),
    ]
    opened = perf_analyzer.argv(
        "pa",
        target(TEXT),
        Shape(protocol="http", mode="open", rate=50.0),
        options,
        data=Path("d"),
        result=Path("r"),
    )
    assert {"--request-rate-range=50:50", "--request-distribution=poisson", "http", "127.0.0.1:1"} <= set(
        opened
    )


def test_inputs_are_rows_without_the_batch_axis() -> None:
    requests = payload.text_inputs(target(TEXT), ("é", "b"), 1)
    assert json.loads(perf_analyzer.data(requests, batched=True)) == {
        "data": [{"TEXT": {"content": [text], "shape": [1]}} for text in ("é", "b")]
    }
    flat = perf_analyzer.data([{"X": np.ones((2, 3), np.float32)}], batched=False)
    assert json.loads(flat)["data"][0]["X"] == {"content": [1.0] * 6, "shape": [2, 3]}


def test_its_csv_becomes_a_level() -> None:
    level = perf_analyzer.parse(CSV, target(TEXT), CLOSED, Options(rows=2))
    assert (level.throughput, level.rows_per_second) == (100.25, 200.5)
    assert level.latency is not None
    assert (level.latency.p50, level.latency.p99, level.latency.mean) == (6.0, 9.0, 6.5)
    (split,) = level.models
    assert (split.queue_ms, split.input_ms, split.infer_ms, split.output_ms) == (2.0, 0.1, 3.0, 0.05)
    assert level.outside_ms == 1.5
    without = perf_analyzer.parse(
        "Request Rate,Inferences/Second,p50 latency,p90 latency,p95 latency,p99 latency\n5,0,1,2,3,4\n",
        target(TEXT),
        CLOSED,
        Options(),
    )
    assert without.models == ()


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", CSV.splitlines()[0]])
def test_a_csv_without_a_result_is_an_error(text: str) -> None:
    with pytest.raises(TrbError, match="no result"):
        perf_analyzer.parse(text, target(TEXT), CLOSED, Options())


def test_why_it_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_analyzer.shutil, "which", lambda name: None)
    with pytest.raises(TrbError, match="not on PATH") as raised:
        perf_analyzer.require()
    assert raised.value.code == Exit.ENGINE_MISSING
    monkeypatch.setattr(perf_analyzer.shutil, "which", lambda name: "/opt/perf_analyzer")

    def refuses(argv: list[str], **options: object) -> str:
        raise ProcessFailed(argv, 1, "", "perf_analyzer: /lib/libc.so.6: version `GLIBC_2.38' not found")

    monkeypatch.setattr(process, "run", refuses)
    with pytest.raises(TrbError, match=r"GLIBC_2\.38"):
        perf_analyzer.require()
