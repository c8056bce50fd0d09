"""NVIDIA's perf_analyzer as the client, where it is installed: its numbers in our report.

It needs glibc 2.38 and comes with the SDK image or ``pip install perf-analyzer``. Failures end its run, it
has no windows to show and does not say what the server's CPU did; those fields are empty then.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from triton_repo_builder import process
from triton_repo_builder.bench import machine, payload, texts
from triton_repo_builder.bench.options import CLOSED, Options, Shape, Urls, Variant, check, shapes
from triton_repo_builder.bench.report import BenchReport, Client, Latency, Level, ModelSplit, Totals
from triton_repo_builder.bench.target import Target, find
from triton_repo_builder.errors import Exit, TrbError
from triton_repo_builder.process import ProcessFailed
from triton_repo_builder.repository import Repository

BINARY = "perf_analyzer"
REMEDY = (
    "run it in the nvcr.io/nvidia/tritonserver:<release>-py3-sdk image, or leave out --client perf-analyzer"
)


def require() -> str:
    """Path of a perf_analyzer that runs; raises ``TrbError`` with the reason where there is none."""
    path = shutil.which(BINARY)
    if path is None:
        raise TrbError(Exit.ENGINE_MISSING, "perf_analyzer is not on PATH", where="--client", remedy=REMEDY)
    try:
        process.run([path, "--version"], timeout=30)
    except (ProcessFailed, OSError) as error:
        text = error.stderr or error.stdout if isinstance(error, ProcessFailed) else str(error)
        reason = text.strip().splitlines()[-1] if text.strip() else "no reason given"
        raise TrbError(
            Exit.ENGINE_MISSING, f"{path} does not run: {reason}", where="--client", remedy=REMEDY
        ) from None
    return path


def argv(
    binary: str, target: Target, shape: Shape, options: Options, *, data: Path, result: Path
) -> list[str]:
    """The command line of one level."""
    grpc = shape.protocol == "grpc"
    url = target.variant.urls.grpc if grpc else target.http.url.removeprefix("http://")
    if shape.mode == CLOSED:
        load = [f"--concurrency-range={shape.concurrency}:{shape.concurrency}"]
    else:
        load = [f"--request-rate-range={shape.rate:g}:{shape.rate:g}", "--request-distribution=poisson"]
    return [
        binary,
        *("-m", target.endpoint, "-u", url, "-i", "grpc" if grpc else "http", "-b", str(options.rows)),
        *load,
        "--async",
        f"--input-data={data}",
        f"--measurement-interval={round(options.window * 1000)}",
        f"--max-trials={options.max_windows}",
        "--stability-percentage=10",
        "--percentile=95",
        "--verbose-csv",
        *("-f", str(result)),
    ]


def data(requests: Sequence[payload.Inputs], batched: bool) -> str:
    """Its --input-data file: one row of every input, without the batch axis."""
    return json.dumps({"data": [_entry(inputs, batched) for inputs in requests]}, ensure_ascii=False)


def _entry(inputs: payload.Inputs, batched: bool) -> dict[str, Any]:
    entry = {}
    for name, array in inputs.items():
        row = array[0] if batched else array
        flat = [value.decode() if isinstance(value, bytes) else value for value in row.reshape(-1).tolist()]
        entry[name] = {"content": flat, "shape": list(row.shape)}
    return entry


def parse(text: str, target: Target, shape: Shape, options: Options) -> Level:
    """One row of its CSV; its times are microseconds."""
    rows = list(csv.DictReader(io.StringIO(text)))
    try:
        row = rows[0]
        rate = float(row["Inferences/Second"])
        latency = _latency(row)
    except (IndexError, KeyError, ValueError) as error:
        raise TrbError(
            Exit.TIMED_OUT,
            f"perf_analyzer gave no result that can be read: {type(error).__name__} {error}",
            where=shape.title,
            remedy="raise --window, or measure without --client perf-analyzer",
        ) from None
    answered = round(float(row.get("request_count") or 0)) or round(rate / options.rows * options.window)
    return Level(
        variant=target.variant.name,
        endpoint=target.endpoint,
        protocol=shape.protocol,
        mode=shape.mode,
        concurrency=shape.concurrency,
        rate=shape.rate,
        length=shape.length,
        rows=options.rows,
        seconds=answered * options.rows / rate if rate else options.window,
        answered=answered,
        throughput=rate / options.rows,
        rows_per_second=rate,
        latency=latency,
        failures={},
        examples={},
        # It ends with an error where its windows never agree.
        stable=True,
        spread={"throughput": None, "p95": None},
        windows=(),
        models=(_split(row, target, answered, options.rows),) if "Server Queue" in row else (),
        outside_ms=_milliseconds(row, "Network+Server Send/Recv"),
        server_cpu_ms=None,
        server_cores=None,
        gpu_utilization={},
        client=Client(processes=1, busiest_core=0.0, cores=0.0, cpu_ms=None, lag_ms=None, machine_busy=None),
        bottleneck="",
        totals=Totals(sent=answered, answered=answered, failed=0, server_rows=None),
        ended="",
    )


def _latency(row: Mapping[str, str]) -> Latency:
    values = {name: float(row[f"{name} latency"]) / 1000 for name in ("p50", "p90", "p95", "p99")}
    mean = float(row.get("Avg latency") or "nan") / 1000
    return Latency(mean=mean if mean == mean else values["p50"], std=0.0, max=values["p99"], **values)


def _milliseconds(row: Mapping[str, str], name: str) -> float | None:
    return float(row[name]) / 1000 if row.get(name) else None


def _split(row: Mapping[str, str], target: Target, answered: int, rows: int) -> ModelSplit:
    """Sums over an ensemble's steps: its CSV has no more than that."""
    parts = [_milliseconds(row, f"Server {name}") for name in _SERVER]
    return ModelSplit(
        model=target.endpoint,
        requests=answered,
        rows=answered * rows,
        executions=0,
        failed=0,
        cached=0,
        rows_per_execution=None,
        request_ms=sum(part or 0.0 for part in parts),
        queue_ms=parts[0],
        input_ms=parts[1],
        infer_ms=parts[2],
        output_ms=parts[3],
        batches={},
    )


_SERVER = ("Queue", "Compute Input", "Compute Infer", "Compute Output")


def run(
    urls: Urls,
    repository: Repository | None,
    options: Options,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> BenchReport:
    """As ``bench.run``, with perf_analyzer sending."""
    check(options)
    binary = require()
    started, clock = datetime.now(timezone.utc), time.monotonic()
    target = find(
        Variant(name="", urls=urls, repository=repository, endpoint=options.endpoint), options.timeout
    )
    payload.check_rows(target, options.rows)
    planned = list(shapes(options))
    levels = []
    with tempfile.TemporaryDirectory(prefix="trb-bench-") as made:
        folder = Path(made)
        for number, shape in enumerate(planned):
            progress(shape.title, number, len(planned))
            file, result = folder / "data.json", folder / "result.csv"
            file.write_text(
                data(_inputs(target, shape, options), bool(target.max_batch_size)), encoding="utf-8"
            )
            command = argv(binary, target, shape, options, data=file, result=result)
            levels.append(_level(command, result, target, shape, options))
    return BenchReport(
        command=options.command,
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - clock,
        client="perf-analyzer",
        servers=(target.server,),
        machine=machine.facts(),
        versions=machine.versions(),
        options={"rows": options.rows, "window": options.window, "max_windows": options.max_windows},
        texts={},
        levels=tuple(levels),
        notes=("perf_analyzer sent: no failures, windows, CPU or client load in this report",),
    )


def _inputs(target: Target, shape: Shape, options: Options) -> list[payload.Inputs]:
    if not payload.takes_text(target):
        return payload.tensor_inputs(target, 1, shape.length)[0]
    base = (options.fixed,) if options.fixed is not None else texts.corpus(options.corpus)
    if shape.length:
        count = texts.measure(target.variant.repository, target.models).count
        base = texts.fit(base, shape.length, count, options.seed)
    return payload.text_inputs(target, base, 1)


def _level(command: list[str], result: Path, target: Target, shape: Shape, options: Options) -> Level:
    seconds = (options.max_windows + 5) * options.window + 60
    try:
        process.run(command, timeout=seconds)
    except ProcessFailed as error:
        lines = (error.stderr or error.stdout).strip().splitlines()
        if not result.exists():
            raise TrbError(
                Exit.FAILED_CHECKS,
                f"perf_analyzer failed: {lines[-1] if lines else 'no reason given'}",
                where=shape.title,
                remedy="leave out --client perf-analyzer: then failures are counted and end nothing",
            ) from None
        unstable = parse(result.read_text(), target, shape, options)
        return replace(unstable, stable=False)
    return parse(result.read_text(), target, shape, options)
