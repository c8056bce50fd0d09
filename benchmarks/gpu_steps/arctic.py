"""Arctic Inference's embedding protocol on the server: texts of 50 tokens, many requests at once.

Its command on an H200: ``benchmark.py --model snowflake-arctic-embed-m-v1.5 --batch-sizes 1,16,64
--requests 10240 --concurrency 1024 --prompt-length 50`` (snowflakedb/ArcticInference, benchmark/embedding).
Here the weights are random, the shape is that model's. ``trb bench`` measures for a time: one as long as
10,240 requests take.
"""

from __future__ import annotations

import math
import os
from typing import Any

import common

from gpu_steps import encoders, serving
from gpu_steps.step import GPU, Setting
from triton_repo_builder.model.read.options import KEEP

LENGTH = 50
BATCHES = (1, 16, 64)
REQUESTS = 10240
CONCURRENCY = 1024
LONGEST = 100.0
"""Seconds of one measurement, whatever is left of the requests."""


def fp32(setting: Setting) -> dict[str, Any]:
    """Tokens per second by rows in a request, with trb build's defaults."""
    return _run(setting, KEEP)


def fp16(setting: Setting) -> dict[str, Any]:
    """With 16-bit floats, which a CPU has not."""
    return _run(setting, "fp16" if setting.device == GPU else KEEP)


def _run(setting: Setting, precision: str) -> dict[str, Any]:
    source = encoders.encoder("arctic-m", setting)
    requests, concurrency = (8, 4) if setting.small else (REQUESTS, CONCURRENCY)
    batches = (1, 4) if setting.small else BATCHES
    tokenizers = 1 if setting.small else min(8, os.cpu_count() or 1)
    levels = []
    with common.scratch() as path:
        common.ours(
            source,
            path,
            "arctic",
            device=setting.device,
            max_batch_size=max(batches),
            tokenizer_instances=tokenizers,
            precision=precision,
        )
        kind = serving.check_kinds(setting, path)
        with common.served(path) as server:
            for rows in batches:
                load = {"concurrency": (concurrency,), "rows": rows, "lengths": (LENGTH,)}
                trial = _measure(setting, server, path, setting.window, load)
                seconds = math.ceil(requests / trial["requests_per_second"])
                window = min(LONGEST, max(setting.window, seconds))
                done = _measure(setting, server, path, window, load)
                done["tokens_per_second"] = done["rows_per_second"] * LENGTH
                done["requests_wanted"] = requests
                levels.append(done)
    return {
        "kind": kind,
        "model": source.name,
        "length": LENGTH,
        "concurrency": concurrency,
        "tokenizer_instances": tokenizers,
        "max_batch_size": max(batches),
        "levels": levels,
    }


def _measure(
    setting: Setting, server: common.Server, path: Any, window: float, load: dict[str, Any]
) -> dict[str, Any]:
    one = {"window": window, "min_windows": 1, "max_windows": 1}
    return serving.levels(setting, server, path, {"arctic": "arctic"}, **one, **load)[0]
