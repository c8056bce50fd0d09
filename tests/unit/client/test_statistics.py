"""What ``trb bench`` reads of a server: statistics, GPUs, CPU time, the process behind a port."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder.bench.measure import cpu, machine
from triton_repo_builder.client import statistics


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


def put_process(proc: Path, pid: int, parent: int, ticks: tuple[int, int, int, int]) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    fields = ["S", str(parent), *["0"] * 9, *map(str, ticks), "20"]
    (folder / "stat").write_text(f"{pid} (a) name (odd)) {' '.join(fields)}")


def test_cpu_is_that_of_a_process_and_all_below_it(tmp_path: Path) -> None:
    second = os.sysconf("SC_CLK_TCK")
    put_process(tmp_path, 10, 1, (second, second, second // 2, 0))
    put_process(tmp_path, 11, 10, (2 * second, 0, 0, 0))
    put_process(tmp_path, 12, 11, (0, 3 * second, 0, 0))
    put_process(tmp_path, 13, 1, (100 * second, 0, 0, 0))
    (tmp_path / "self").mkdir()
    assert cpu.tree_seconds(10, tmp_path) == 7.5
    assert cpu.tree_seconds(99, tmp_path) is None
    assert (cpu.tree_seconds(os.getpid()) or 0) > 0


def test_the_share_of_the_machine() -> None:
    before, after = cpu.Busy(busy=100, total=1000), cpu.Busy(busy=150, total=1200)
    assert cpu.share(before, after) == 0.25
    assert cpu.share(before, before) is None
    assert cpu.share(None, after) is None
    assert cpu.machine() is not None


def test_only_a_loopback_url_names_a_process_of_this_machine() -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(1)
        port = door.getsockname()[1]
        assert cpu.listener(f"http://127.0.0.1:{port}") == os.getpid()
        assert cpu.listener(f"http://localhost:{port}/") == os.getpid()
        assert cpu.listener(f"http://10.0.0.1:{port}") is None
    assert cpu.listener(f"http://127.0.0.1:{port}") is None
    assert cpu.local("127.0.0.1:8001")
    assert not cpu.local("gpu-7:8001")


def test_a_proxy_that_listens_for_a_container_is_not_the_server(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(
        "  sl  local_address rem_address   st\n"
        "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 777 1\n"
    )
    (tmp_path / "50" / "fd").mkdir(parents=True)
    (tmp_path / "50" / "fd" / "3").symlink_to("socket:[777]")
    (tmp_path / "50" / "comm").write_text("tritonserver\n")
    assert cpu.listener("http://127.0.0.1:8000", tmp_path) == 50
    (tmp_path / "50" / "comm").write_text("docker-proxy\n")
    assert cpu.listener("http://127.0.0.1:8000", tmp_path) is None


def test_facts_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A Fast One\n")
    (tmp_path / "meminfo").write_text("MemTotal:       16777216 kB\n")
    found = machine.facts(tmp_path)
    assert (found["cpu"], found["memory_gib"]) == ("A Fast One", 16.0)
    assert machine.facts(tmp_path / "nowhere")["memory_gib"] is None
    assert {"python", "numpy"} <= machine.versions().keys()
