"""Reports made by hand, for the unit tests of ``trb bench``."""

from __future__ import annotations

from typing import Any

from triton_repo_builder.measure.bench.options import Variant
from triton_repo_builder.measure.bench.report.report import (
    BenchReport,
    Client,
    Latency,
    Level,
    Totals,
    Window,
)
from triton_repo_builder.measure.bench.target import Target
from triton_repo_builder.repository.cases import CaseFile
from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run.client import HttpClient, Urls
from triton_repo_builder.run.client.statistics import ModelSplit


def latency(p50: float = 5.0) -> Latency:
    return Latency(mean=p50, std=1.0, p50=p50, p90=p50 * 2, p95=p50 * 3, p99=p50 * 4, max=p50 * 5)


def window(answered: int = 100, p50: float | None = 5.0, arrived: int | None = None) -> Window:
    return Window(
        seconds=1.0,
        answered=answered,
        arrived=answered if arrived is None else arrived,
        failed=0,
        latency=None if p50 is None else latency(p50),
    )


def split(model: str, infer: float = 3.0, rows: float = 4.0) -> ModelSplit:
    return ModelSplit(
        model=model,
        requests=100,
        rows=100,
        executions=25,
        failed=0,
        cached=0,
        rows_per_execution=rows,
        request_ms=4.5,
        queue_ms=1.0,
        input_ms=0.1,
        infer_ms=infer,
        output_ms=0.2,
        batches={4: 25},
    )


def level(**changes: Any) -> Level:
    values: dict[str, Any] = {
        "variant": "",
        "endpoint": "bert",
        "protocol": "grpc",
        "mode": "closed",
        "concurrency": 16,
        "rate": None,
        "length": None,
        "rows": 1,
        "seconds": 3.0,
        "answered": 300,
        "throughput": 100.0,
        "rows_per_second": 100.0,
        "latency": latency(),
        "failures": {},
        "examples": {},
        "stable": True,
        "spread": {"throughput": 0.02, "p95": 0.05},
        "windows": (window(), window(), window()),
        "models": (split("bert"), split("bert_tokenizer", 0.5, 2.0), split("bert_model", 2.5)),
        "split_seconds": 3.0,
        "outside_ms": 0.5,
        "server_cpu_ms": 10.0,
        "server_cores": 1.0,
        "gpu_utilization": {},
        "client": Client(processes=2, busiest_core=0.2, cores=0.3, cpu_ms=0.1, lag_ms=0.5, machine_busy=0.7),
        "bottleneck": "",
        "totals": Totals(sent=400, answered=400, failed=0, server_rows=400),
        "ended": "",
        "sent": "0a1b",
    }
    return Level(**{**values, **changes})


def report(*levels: Level, **changes: Any) -> BenchReport:
    values: dict[str, Any] = {
        "command": "trb bench --fixed '<b>'",
        "started": "2024-10-01T12:00:00+00:00",
        "seconds": 12.0,
        "client": "trb",
        "servers": ({"url": "http://127.0.0.1:8000", "version": "2.51.0", "endpoint": "bert"},),
        "machine": {"cpu": "a CPU", "cores": 2, "memory_gib": 8.0},
        "versions": {"python": "3.11"},
        "options": {"rows": 1},
        "texts": {
            "": {
                "source": "shipped corpus",
                "texts": 420,
                "unit": "tokens",
                "shortest": 2,
                "median": 19,
                "longest": 134,
            }
        },
        "levels": levels,
        "notes": (),
    }
    return BenchReport(**{**values, **changes})


def target(*inputs: Tensor, batch: int = 8, golden: CaseFile | None = None, **changes: Any) -> Target:
    outputs = (Tensor(name="Y", datatype=changes.pop("output", "FP32"), shape=(-1, 2)),)
    values: dict[str, Any] = {
        "variant": Variant(name="", urls=Urls(http="http://127.0.0.1:1", grpc="127.0.0.1:2")),
        "http": HttpClient("http://127.0.0.1:1"),
        "endpoint": Endpoint(name="a model", inputs=inputs, outputs=outputs, max_batch_size=batch),
        "models": ("a model",),
        "truncates_at": None,
        "golden": golden,
        "pid": None,
        "metrics": "",
        "on_gpu": False,
        "server": {},
    }
    return Target(**{**values, **changes})


TEXT = Tensor(name="TEXT", datatype="BYTES", shape=(-1, 1))
