"""NVIDIA's perf_analyzer as the client, where it is installed: its numbers in our report.

Its program needs glibc 2.38 (Ubuntu 24.04, Debian 13). ``pip install perf-analyzer`` installs it there; on an
older system pip finds only a package without the command. The SDK image has it, too. It tells of one run what
its CSV says; the server is asked for the rest before and after. What nobody knows is None.
"""

from __future__ import annotations

import csv
import io
import json
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from triton_repo_builder import process
from triton_repo_builder.bench.load import requests as load_requests
from triton_repo_builder.bench.measure import cpu, machine
from triton_repo_builder.bench.options import (
    CLOSED,
    Options,
    Shape,
    Urls,
    Variant,
    check,
    shapes,
)
from triton_repo_builder.bench.prepare import prepare
from triton_repo_builder.bench.report.report import (
    BenchReport,
    Client,
    Latency,
    Level,
    Totals,
)
from triton_repo_builder.bench.target import Target
from triton_repo_builder.client import RequestFailed, statistics
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.process import ProcessFailed
from triton_repo_builder.repository import Repository

BINARY = "perf_analyzer"
UNSTABLE = "perf_analyzer gives no figures, since its windows never agreed; it took"
GLIBC = (2, 38)
"""What its program needs; an older system's pip installs a package without the command."""
COUNT = re.compile(r"^\s*Request count: (\d+)", re.MULTILINE)


def _remedy() -> str:
    name, version = platform.libc_ver()
    image = "run bench in the image nvcr.io/nvidia/tritonserver:<release>-py3-sdk, which has it"
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    if name == "glibc" and numbers >= GLIBC:
        return f"pip install perf-analyzer; or {image}; or leave out --client perf-analyzer"
    wanted, has = ".".join(map(str, GLIBC)), f"{name} {version}".strip() or "another libc"
    return (
        f"{image}; or leave out --client perf-analyzer. 'pip install perf-analyzer' brings no command here: "
        f"it needs glibc {wanted}, this system has {has}"
    )


def require() -> str:
    """Path of a perf_analyzer that runs; raises ``TrbError`` with the reason where there is none."""
    path = shutil.which(BINARY)
    if path is None:
        raise TrbError(
            Code.ENGINE_MISSING, "perf_analyzer is not on PATH", where="--client", remedy=_remedy()
        )
    try:
        process.run([path, "--version"], timeout=30)
    except (ProcessFailed, OSError) as error:
        text = error.stderr or error.stdout if isinstance(error, ProcessFailed) else str(error)
        reason = text.strip().splitlines()[-1] if text.strip() else "no reason given"
        raise TrbError(
            Code.ENGINE_MISSING, f"{path} does not run: {reason}", where="--client", remedy=_remedy()
        ) from None
    return path


def argv(
    binary: str, target: Target, shape: Shape, options: Options, *, data: Path, result: Path
) -> list[str]:
    """The command line of one level."""
    grpc = shape.protocol == "grpc"
    url = target.variant.urls.grpc if grpc else target.http.url.removeprefix("http://")
    wire: list[str] = []
    if url.startswith("grpcs://"):
        url, wire = url.removeprefix("grpcs://"), ["--ssl-grpc-use-ssl"]
    elif shape.protocol == "http":
        # It sends binary tensors over HTTP unless told otherwise.
        wire = ["--input-tensor-format=json", "--output-tensor-format=json"]
    if shape.mode == CLOSED:
        load = [f"--concurrency-range={shape.concurrency}:{shape.concurrency}"]
    else:
        load = [f"--request-rate-range={shape.rate:g}:{shape.rate:g}", "--request-distribution=poisson"]
    return [
        binary,
        *("-m", target.endpoint, "-u", url, "-i", "grpc" if grpc else "http", "-b", str(options.rows)),
        *wire,
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


def data(requests: Sequence[load_requests.Inputs], batched: bool) -> str:
    """Its --input-data file: one row of every input, without the batch axis."""
    return json.dumps({"data": [_entry(inputs, batched) for inputs in requests]}, ensure_ascii=False)


def _entry(inputs: load_requests.Inputs, batched: bool) -> dict[str, Any]:
    entry = {}
    for name, array in inputs.items():
        row = array[0] if batched else array
        flat = [value.decode() if isinstance(value, bytes) else value for value in row.reshape(-1).tolist()]
        entry[name] = {"content": flat, "shape": list(row.shape)}
    return entry


def parse(text: str, said: str, target: Target, shape: Shape, options: Options) -> Level:
    """One row of its CSV, whose times are microseconds, and the number of requests from what it printed."""
    rows = list(csv.DictReader(io.StringIO(text)))
    try:
        row = rows[0]
        rate = float(row["Inferences/Second"])
        latency = _latency(row)
    except (IndexError, KeyError, ValueError) as error:
        raise TrbError(
            Code.TIMED_OUT,
            f"perf_analyzer gave no result that can be read: {type(error).__name__} {error}",
            where=shape.title,
            remedy="raise --window, or measure without --client perf-analyzer",
        ) from None
    counts = COUNT.findall(said)
    return Level(
        variant=target.variant.name,
        endpoint=target.endpoint,
        protocol=shape.protocol,
        mode=shape.mode,
        concurrency=shape.concurrency,
        rate=shape.rate,
        length=shape.length,
        rows=options.rows,
        # It does not say how long the windows were that it counts.
        seconds=None,
        answered=int(counts[-1]) if counts else None,
        throughput=rate / options.rows,
        rows_per_second=rate,
        latency=latency,
        failures={},
        examples={},
        # It ends with an error where its windows never agree.
        stable=True,
        spread={"throughput": None, "p95": None},
        windows=(),
        models=(),
        # Its own warm-up is in the split.
        split_seconds=None,
        outside_ms=_milliseconds(row, "Network+Server Send/Recv"),
        server_cpu_ms=None,
        server_cores=None,
        gpu_utilization={},
        client=Client(
            processes=1, busiest_core=None, cores=None, cpu_ms=None, lag_ms=None, machine_busy=None
        ),
        bottleneck="",
        totals=Totals(sent=None, answered=None, failed=None, server_rows=None),
        ended="",
        sent="",
    )


def _latency(row: Mapping[str, str]) -> Latency:
    values = {name: float(row[f"{name} latency"]) / 1000 for name in ("p50", "p90", "p95", "p99")}
    return Latency(mean=_milliseconds(row, "Avg latency"), std=None, max=None, **values)


def _milliseconds(row: Mapping[str, str], name: str) -> float | None:
    return float(row[name]) / 1000 if row.get(name) else None


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """What the server says of itself."""

    stats: statistics.Snapshot
    cpu: float | None


def _read(target: Target) -> _Reading:
    try:
        stats = statistics.settled(target.http)
    except RequestFailed:
        stats = {}
    return _Reading(stats=stats, cpu=cpu.tree_seconds(target.pid) if target.pid else None)


def with_server(level: Level, target: Target, before: _Reading, after: _Reading) -> Level:
    """The level with what the server counted during all of perf_analyzer's run."""
    if not before.stats or not after.stats:
        return level
    models = statistics.split(before.stats, after.stats, target.models)
    requests = next((one.requests for one in models if one.model == target.endpoint), 0)
    cost = None
    if before.cpu is not None and after.cpu is not None and requests:
        cost = (after.cpu - before.cpu) * 1000 / requests
    rows = statistics.rows_counted(before.stats, after.stats, target.endpoint)
    return replace(
        level,
        models=models,
        server_cpu_ms=cost,
        totals=replace(level.totals, server_rows=rows),
    )


def run(
    urls: Urls,
    repository: Repository | None,
    options: Options,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
    *,
    pid: int | None = None,
) -> BenchReport:
    """As ``bench.run``, with perf_analyzer sending."""
    check(options)
    if options.processes:
        raise TrbError(
            Code.USAGE,
            "perf_analyzer is one process",
            where="--processes",
            remedy="leave it out, or leave out --client perf-analyzer",
        )
    binary = require()
    started, clock = datetime.now(timezone.utc), time.monotonic()
    variant = Variant(name="", urls=urls, repository=repository, endpoint=options.endpoint, pid=pid)
    # It makes requests of several rows itself.
    made = prepare(variant, replace(options, rows=1))
    load_requests.check_rows(made.target, options.rows)
    doubts = made.check(options)
    planned = list(shapes(options))
    levels: list[Level] = []
    unstable: list[str] = []
    with tempfile.TemporaryDirectory(prefix="trb-bench-") as name:
        folder = Path(name)
        for number, shape in enumerate(planned):
            progress(shape.title, number, len(planned))
            file, result = folder / "data.json", folder / "result.csv"
            result.unlink(missing_ok=True)
            batched = bool(made.target.max_batch_size)
            text = data(made.inputs[shape.length], batched)
            file.write_text(text, encoding="utf-8")
            command = argv(binary, made.target, shape, options, data=file, result=result)
            before = _read(made.target)
            level = _level(command, result, made.target, shape, options)
            if level is None:
                unstable.append(f"{shape.title}: {UNSTABLE} {options.max_windows} of {options.window:g} s")
                continue
            level = replace(level, sent=load_requests.digest(made.inputs[shape.length], batched))
            levels.append(with_server(level, made.target, before, _read(made.target)))
    if not levels:
        raise TrbError(
            Code.TIMED_OUT,
            unstable[0],
            where="--client perf-analyzer",
            remedy="raise --window or --max-windows",
        )
    return BenchReport(
        command=options.command,
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - clock,
        client="perf-analyzer",
        servers=(made.target.server,),
        machine=machine.facts(),
        versions=machine.versions(),
        options={"rows": options.rows, "window": options.window, "max_windows": options.max_windows},
        texts={"": made.about},
        levels=tuple(levels),
        notes=(*made.notes, *doubts, *unstable, NOTE),
    )


NOTE = (
    "perf_analyzer sent: failures, windows, largest latency, GPU utilisation and the client's load are "
    "unknown; rows per execution, server CPU and the models' times are those of its whole run, its warm-up "
    "included"
)


def _level(command: list[str], result: Path, target: Target, shape: Shape, options: Options) -> Level | None:
    """None where its windows never agreed: then it writes no figures (2.60.0)."""
    seconds = (options.max_windows + 5) * options.window + 60
    try:
        said = process.run(command, timeout=seconds)
    except ProcessFailed as error:
        lines = (error.stderr or error.stdout).strip().splitlines()
        if not result.exists():
            if any("stable measurement" in line for line in lines):
                return None
            raise TrbError(
                Code.FAILED_CHECKS,
                f"perf_analyzer failed: {lines[-1] if lines else 'no reason given'}",
                where=shape.title,
                remedy="leave out --client perf-analyzer: then failures are counted and end nothing",
            ) from None
        unstable = parse(result.read_text(), error.stdout, target, shape, options)
        return replace(unstable, stable=False)
    return parse(result.read_text(), said, target, shape, options)
