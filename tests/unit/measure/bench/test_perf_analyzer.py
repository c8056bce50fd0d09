"""perf_analyzer's command line and input file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench_values import TEXT, target

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench import perf_analyzer
from triton_repo_builder.measure.bench.load import requests as load_requests
from triton_repo_builder.measure.bench.options import Shape, Variant
from triton_repo_builder.measure.bench.prepare import Prepared
from triton_repo_builder.measure.options import BenchOptions
from triton_repo_builder.run.client import Urls

CLOSED = Shape(protocol="grpc", mode="closed", concurrency=4)
DATA = Path("d.json")


def test_argv_of_a_closed_and_an_open_loop() -> None:
    options = BenchOptions(rows=2, window=1.5, max_windows=7)
    assert perf_analyzer.argv(target(TEXT), CLOSED, options, DATA) == [
        *("perf_analyzer", "-m", "a model", "-u", "127.0.0.1:2", "-i", "grpc", "-b", "2"),
        *("--concurrency-range=4:4", "--async", "--input-data=d.json", "--measurement-interval=1500"),
        *("--max-trials=7", "--stability-percentage=10", "--percentile=95"),
    ]
    rate = Shape(protocol="http", mode="open", rate=50.0)
    opened = perf_analyzer.argv(target(TEXT), rate, options, DATA)
    assert {"--request-rate-range=50:50", "--request-distribution=poisson", "http", "127.0.0.1:1"} <= set(
        opened
    )
    assert {"--input-tensor-format=json", "--output-tensor-format=json"} <= set(opened)
    binary = perf_analyzer.argv(target(TEXT), replace(CLOSED, protocol="http-binary"), options, DATA)
    assert not [word for word in binary if "tensor-format" in word]
    secure = target(TEXT, variant=Variant(name="", urls=Urls(http="https://x", grpc="grpcs://x:8001")))
    assert {"x:8001", "--ssl-grpc-use-ssl"} <= set(perf_analyzer.argv(secure, CLOSED, options, DATA))


def test_inputs_are_rows_without_the_batch_axis() -> None:
    requests = load_requests.text_inputs(target(TEXT), ("é", "b"), 1)
    assert json.loads(perf_analyzer.input_data(requests, batched=True) or "") == {
        "data": [{"TEXT": {"content": [text], "shape": [1]}} for text in ("é", "b")]
    }
    flat = perf_analyzer.input_data([{"X": np.ones((2, 3), np.float32)}], batched=False)
    assert json.loads(flat or "")["data"][0]["X"] == {"content": [1.0] * 6, "shape": [2, 3]}


def prepared(*contents: str | bytes) -> Prepared:
    texts = [content if isinstance(content, bytes) else content.encode() for content in contents]
    inputs = [{"TEXT": np.array([[text]], dtype=object)} for text in texts]
    return Prepared(target=target(TEXT), inputs={None: inputs}, about={}, notes=())


def test_every_level_has_a_command_that_reads_the_file(tmp_path: Path) -> None:
    options = BenchOptions(concurrency=(1, 4))
    first, second = perf_analyzer.notes([prepared("a", "b")], options, tmp_path / "new")
    file = tmp_path / "new" / "a model.json"
    assert first.startswith("grpc, 1 client, with perf_analyzer: perf_analyzer -m 'a model' ")
    assert f"'--input-data={file}'" in first
    assert "--concurrency-range=4:4" in second
    assert len(json.loads(file.read_text())["data"]) == 2


def test_files_have_no_equivalent(tmp_path: Path) -> None:
    (note,) = perf_analyzer.notes([prepared(b"\xff\xd8")], BenchOptions(concurrency=(1, 4)), tmp_path)
    assert "no equivalent of a model" in note
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_an_error_of_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrbError) as raised:
        list(perf_analyzer.notes([prepared("a")], BenchOptions(), tmp_path / "file" / "below"))
    assert raised.value.code == Code.OUTPUT_NOT_WRITABLE
    assert "--print-perf-analyzer" in raised.value.remedy
