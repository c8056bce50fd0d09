"""What the steps that load a server share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import common

from gpu_steps.step import GPU, Setting, StepFailed
from triton_repo_builder import repository
from triton_repo_builder.measure import bench
from triton_repo_builder.measure.bench import Level

GRPC = "grpc"
MANY = 8
"""Cores from which on half of them are for the clients: a GPU answers more than four processes can ask."""


def levels(
    setting: Setting, server: common.Server, path: Path, endpoints: Mapping[str, str], **options: Any
) -> list[dict[str, Any]]:
    """Every level of ``trb bench`` on each endpoint (by label), one after the other at each load."""
    local = repository.read(path)
    variants = tuple(
        bench.Variant(name=label, urls=server.urls, repository=local, endpoint=name, pid=server.pid)
        for label, name in endpoints.items()
    )
    cores = len(os.sched_getaffinity(0))
    given = {
        "processes": min(8, cores // 2) if cores >= MANY else 0,
        "protocols": (GRPC,),
        "concurrency": setting.clients,
        "warmup": setting.window / 2,
        "window": setting.window,
        "max_windows": bench.BenchOptions().min_windows,
        "timeout": 120.0,
        **options,
    }
    report = bench.run_variants(
        variants, bench.BenchOptions(**given), lambda text, done, total: common.say(text)
    )
    return [row(level) for level in answered(report.levels)]


def answered(levels_: tuple[Level, ...]) -> tuple[Level, ...]:
    """The same; raises ``StepFailed`` where a request failed: its speed would be that of refusals."""
    failed = [f"{level.variant}, {level.load}: {dict(level.failures)}" for level in levels_ if level.failed]
    silent = [f"{level.variant}, {level.load}: no answer" for level in levels_ if not level.answered]
    if failed or silent:
        raise StepFailed("; ".join([*failed, *silent]))
    return levels_


def row(level: Level) -> dict[str, Any]:
    """What the page shows of a level."""
    main = level.main_model
    return {
        "variant": level.variant,
        "clients": level.concurrency,
        "rows": level.rows,
        "length": level.length,
        "answered": level.answered,
        "requests_per_second": level.throughput,
        "rows_per_second": level.rows_per_second,
        "mean_ms": level.latency.mean if level.latency else None,
        "p50_ms": level.latency.p50 if level.latency else None,
        "p99_ms": level.latency.p99 if level.latency else None,
        "server_cpu_ms": level.server_cpu_ms,
        "rows_per_execution": main.rows_per_execution if main else None,
        "gpu_utilization": level.busiest_gpu,
        "bottleneck": level.bottleneck,
    }


def kinds(path: Path) -> set[str]:
    """Instance kinds of all ONNX models of a repository, as their configurations name them."""
    models = repository.read(path).models
    onnx = (model for model in models if model.backend == "onnxruntime")
    return {group.kind for model in onnx for group in model.config.instance_groups}


def check_kinds(setting: Setting, path: Path) -> str:
    """The one kind that all have; raises ``StepFailed`` if that is not the setting's."""
    wanted = "KIND_GPU" if setting.device == GPU else "KIND_CPU"
    found = kinds(path)
    if found != {wanted}:
        raise StepFailed(f"instances of {', '.join(sorted(found)) or 'no kind'} instead of {wanted}")
    return wanted


def largest_batch(path: Path, name: str) -> int:
    """A model's max_batch_size, as its configuration has it."""
    model = repository.read(path).model(name)
    return model.config.max_batch_size if model else 0
