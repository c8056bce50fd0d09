"""The server's statistics and its metrics page."""

from __future__ import annotations

from typing import Any

import pytest

from triton_repo_builder.run.client import statistics


def stats(name: str, requests: int, executions: int, version: str = "1") -> dict[str, Any]:
    """As the server writes it: durations are sums over requests, in nanoseconds."""
    return {
        "name": name,
        "version": version,
        "inference_count": str(requests),
        "execution_count": executions,
        "inference_stats": {
            "success": {"count": requests, "ns": requests * 5_000_000},
            "fail": {"count": 1, "ns": 1},
            "queue": {"count": requests, "ns": requests * 2_000_000},
            "compute_input": {"count": requests, "ns": requests * 100_000},
            "compute_infer": {"count": requests, "ns": requests * 2_500_000},
            "compute_output": {"count": requests, "ns": requests * 400_000},
            "cache_hit": {"count": 3, "ns": 3},
        },
        "batch_stats": [{"batch_size": 4, "compute_infer": {"count": executions, "ns": 1}}],
    }


def test_the_split_is_the_growth_between_two_readings() -> None:
    before = statistics.parse({"model_stats": [stats("m", 100, 50), stats("idle", 7, 7)]})
    after = statistics.parse(
        {"model_stats": [stats("idle", 7, 7), stats("other", 2, 2), stats("m", 300, 100)]}
    )
    first, second = statistics.split(before, after, ["e", "m"])
    assert (first.model, second.model) == ("m", "other"), "first the endpoint's own, idle ones not at all"
    assert (first.requests, first.rows, first.executions, first.rows_per_execution) == (200, 200, 50, 4.0)
    assert (first.request_ms, first.queue_ms, first.input_ms, first.infer_ms, first.output_ms) == (
        pytest.approx(5.0),
        pytest.approx(2.0),
        pytest.approx(0.1),
        pytest.approx(2.5),
        pytest.approx(0.4),
    )
    assert first.batches == {4: 50}
    assert first.failed == 0
    assert statistics.rows_counted(before, after, "m") == 200
    assert statistics.rows_counted({}, after, "m") == 303, "answers from the cache are answers"


def test_versions_of_a_model_are_added() -> None:
    both = statistics.parse({"model_stats": [stats("m", 10, 5), stats("m", 30, 5, "2")]})
    assert (both["m"].rows, both["m"].executions, both["m"].batches) == (40, 10, {4: 10})


def test_gpus_are_read_from_the_metrics_page() -> None:
    page = """# HELP nv_gpu_utilization GPU utilization rate [0.0 - 1.0)
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.93
nv_gpu_utilization{gpu_uuid="GPU-2"} 0
nv_gpu_power_usage{gpu_uuid="GPU-1"} 55.1
"""
    assert statistics.gpu_utilization(page) == {"GPU-1": 0.93, "GPU-2": 0.0}
    assert statistics.gpu_utilization("nv_inference_count 3") == {}
    assert statistics.read_metrics("http://127.0.0.1:9/metrics")[0] == ""
    assert statistics.read_metrics("no url")[0] == ""
    assert statistics.gpu_utilization('nv_gpu_utilization{gpu_uuid="GPU-1"} nan\n') == {}, (
        "not known is not 0"
    )
