"""Command lines and input file with which NVIDIA's perf_analyzer sends the load of a report.

It is not run here: https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/perf_analyzer/README.html
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files, user_file
from triton_repo_builder.measure.bench.load.requests import Inputs
from triton_repo_builder.measure.bench.options import CLOSED, Shape, shapes
from triton_repo_builder.measure.bench.prepare import Prepared
from triton_repo_builder.measure.bench.target import Target
from triton_repo_builder.measure.options import BenchOptions

BINARY = "perf_analyzer"


def notes(prepared: Sequence[Prepared], options: BenchOptions, folder: Path) -> Iterator[str]:
    """Write the input of every level under ``folder`` and give the command line that sends it."""
    for variant in prepared:
        target = variant.target
        for shape in shapes(options):
            name = "-".join(filter(None, [target.variant.name, target.name, str(shape.length or "")]))
            file = folder / f"{name}.json"
            text = input_data(variant.inputs[shape.length], batched=bool(target.endpoint.max_batch_size))
            if text is None:
                yield f"{BINARY} has no equivalent of {name}: its input file is JSON, which cannot hold files"
                break
            _write(file, text)
            yield f"{shape.title}, with {BINARY}: {shlex.join(argv(target, shape, options, file))}"


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        user_file.write(file, text.encode())
    except OSError as error:
        option = "with --print-perf-analyzer"
        raise files.explain(error, file.parent, how=option, kept="nothing was measured") from None


def argv(target: Target, shape: Shape, options: BenchOptions, data: Path) -> list[str]:
    """The command line of one level."""
    grpc = shape.protocol == "grpc"
    url = target.variant.urls.grpc if grpc else target.http.url.removeprefix("http://")
    encoding: list[str] = []
    if url.startswith("grpcs://"):
        url, encoding = url.removeprefix("grpcs://"), ["--ssl-grpc-use-ssl"]
    elif shape.protocol == "http":
        # Its default over HTTP is binary tensors.
        encoding = ["--input-tensor-format=json", "--output-tensor-format=json"]
    if shape.mode == CLOSED:
        load = [f"--concurrency-range={shape.concurrency}:{shape.concurrency}"]
    else:
        load = [f"--request-rate-range={shape.rate:g}:{shape.rate:g}", "--request-distribution=poisson"]
    return [
        BINARY,
        *("-m", target.name, "-u", url, "-i", "grpc" if grpc else "http", "-b", str(options.rows)),
        *encoding,
        *load,
        "--async",
        f"--input-data={data}",
        f"--measurement-interval={round(options.window * 1000)}",
        f"--max-trials={options.max_windows}",
        "--stability-percentage=10",
        "--percentile=95",
    ]


def input_data(requests: Sequence[Inputs], *, batched: bool) -> str | None:
    """Text of an --input-data file: the first row of each request, without the batch axis; None for files.

    perf_analyzer makes requests of several rows itself.
    """
    try:
        entries = [_entry(inputs, batched) for inputs in requests]
    except UnicodeDecodeError:
        return None
    return json.dumps({"data": entries}, ensure_ascii=False)


def _entry(inputs: Inputs, batched: bool) -> dict[str, Any]:
    entry = {}
    for name, array in inputs.items():
        row = array[0] if batched else array
        flat = [value.decode() if isinstance(value, bytes) else value for value in row.reshape(-1).tolist()]
        entry[name] = {"content": flat, "shape": list(row.shape)}
    return entry
