"""perf_analyzer's command line and CSV; the program itself needs a newer glibc than the tests may ask for."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench_values import TEXT, report, target

from triton_repo_builder import process
from triton_repo_builder.bench import perf_analyzer
from triton_repo_builder.bench.load import requests as load_requests
from triton_repo_builder.bench.options import (
    Address,
    Options,
    Shape,
    Variant,
)
from triton_repo_builder.bench.report import table
from triton_repo_builder.client.statistics import Counters
from triton_repo_builder.errors import Code, TrbError
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
    assert {"--input-tensor-format=json", "--output-tensor-format=json"} <= set(opened)
    binary = perf_analyzer.argv(
        "pa", target(TEXT), replace(CLOSED, protocol="http-binary"), options, data=Path("d"), result=Path("r")
    )
    assert not [word for word in binary if "tensor-format" in word]
    secure = target(TEXT, variant=Variant(name="", urls=Address(http="https://x", grpc="grpcs://x:8001")))
    words = perf_analyzer.argv("pa", secure, CLOSED, options, data=Path("d"), result=Path("r"))
    assert {"x:8001", "--ssl-grpc-use-ssl"} <= set(words)


def test_inputs_are_rows_without_the_batch_axis() -> None:
    requests = load_requests.text_inputs(target(TEXT), ("é", "b"), 1)
    assert json.loads(perf_analyzer.data(requests, batched=True)) == {
        "data": [{"TEXT": {"content": [text], "shape": [1]}} for text in ("é", "b")]
    }
    flat = perf_analyzer.data([{"X": np.ones((2, 3), np.float32)}], batched=False)
    assert json.loads(flat)["data"][0]["X"] == {"content": [1.0] * 6, "shape": [2, 3]}


SAID = "Request concurrency: 4\n  Client: \n    Request count: 348\n    Throughput: 200.5 infer/sec\n"


def test_its_csv_becomes_a_level() -> None:
    level = perf_analyzer.parse(CSV, SAID, target(TEXT), CLOSED, Options(rows=2))
    assert (level.throughput, level.rows_per_second, level.answered) == (100.25, 200.5, 348)
    assert level.latency is not None
    assert (level.latency.p50, level.latency.p99, level.latency.mean) == (6.0, 9.0, 6.5)
    assert level.outside_ms == 1.5


def test_what_it_does_not_say_is_unknown() -> None:
    text = "Request Rate,Inferences/Second,p50 latency,p90 latency,p95 latency,p99 latency\n5,7,1,2,3,4\n"
    level = perf_analyzer.parse(text, "", target(TEXT), CLOSED, Options())
    assert level.latency is not None
    assert (level.latency.mean, level.latency.std, level.latency.max) == (None, None, None)
    assert (level.answered, level.seconds, level.outside_ms) == (None, None, None)
    assert (level.client.busiest_core, level.client.cores, level.totals.sent) == (None, None, None)
    assert level.models == ()
    made = report(level, client="perf-analyzer")
    header, (row,) = table.level_table(made)
    assert row[header.index("client core")] == "-"
    (line,) = csv.DictReader(io.StringIO(table.csv_text(made)))
    assert (line["std_ms"], line["max_ms"], line["answered"], line["client_busiest_core"]) == ("", "", "", "")
    assert table.remarks(report(replace(level, stable=False)))[-1].endswith("not stable, says the client")


def test_what_the_server_counted_is_added() -> None:
    def reading(requests: int, cpu: float | None) -> perf_analyzer._Reading:
        times = {"success": (requests, requests * 5_000_000)}
        counters = Counters(rows=requests, executions=requests // 4, times=times)
        return perf_analyzer._Reading(stats={"a model": counters}, cpu=cpu)

    level = perf_analyzer.parse(CSV, SAID, target(TEXT), CLOSED, Options())
    told = perf_analyzer.with_server(level, target(TEXT), reading(100, 1.0), reading(500, 3.0))
    (split,) = told.models
    assert (split.requests, split.rows_per_execution, split.request_ms) == (400, 4.0, 5.0)
    assert (told.server_cpu_ms, told.totals.server_rows) == (5.0, 400)
    assert table.model_table(report(told))[0][2] == "-", "for how long is not known"
    far = perf_analyzer.with_server(level, target(TEXT), reading(100, None), reading(500, None))
    assert far.server_cpu_ms is None
    silent = perf_analyzer._Reading(stats={}, cpu=None)
    assert perf_analyzer.with_server(level, target(TEXT), silent, silent) is level


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", CSV.splitlines()[0]])
def test_a_csv_without_a_result_is_an_error(text: str) -> None:
    with pytest.raises(TrbError, match="no result"):
        perf_analyzer.parse(text, "", target(TEXT), CLOSED, Options())


def test_processes_are_refused() -> None:
    with pytest.raises(TrbError, match="one process"):
        perf_analyzer.run(Address(http="x", grpc="y"), None, Options(processes=2))


@pytest.mark.parametrize(
    ("libc", "said"),
    [
        (("glibc", "2.36"), "brings no command here: it needs glibc 2.38, this system has glibc 2.36"),
        (
            ("glibc", "2.39"),
            "pip install perf-analyzer; or run bench in the image nvcr.io/nvidia/tritonserver",
        ),
        (("", ""), "this system has another libc"),
    ],
)
def test_what_to_do_without_it_depends_on_the_system(
    monkeypatch: pytest.MonkeyPatch, libc: tuple[str, str], said: str
) -> None:
    monkeypatch.setattr(perf_analyzer.shutil, "which", lambda name: None)
    monkeypatch.setattr(perf_analyzer.platform, "libc_ver", lambda: libc)
    with pytest.raises(TrbError) as raised:
        perf_analyzer.require()
    assert said in raised.value.remedy
    assert "leave out --client perf-analyzer" in raised.value.remedy


def test_why_it_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_analyzer.shutil, "which", lambda name: None)
    with pytest.raises(TrbError, match="not on PATH") as raised:
        perf_analyzer.require()
    assert raised.value.code == Code.ENGINE_MISSING
    monkeypatch.setattr(perf_analyzer.shutil, "which", lambda name: "/opt/perf_analyzer")

    def refuses(argv: list[str], **options: object) -> str:
        raise ProcessFailed(argv, 1, "", "perf_analyzer: /lib/libc.so.6: version `GLIBC_2.38' not found")

    monkeypatch.setattr(process, "run", refuses)
    with pytest.raises(TrbError, match=r"GLIBC_2\.38"):
        perf_analyzer.require()
