"""Which readings of a level count: those of GPUs, and those of a server that ended or began anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from triton_repo_builder.measure.bench.measure import snapshots
from triton_repo_builder.measure.bench.measure.snapshots import Snapshot
from triton_repo_builder.run.client.statistics import Counters, gpu_utilization

PAGE = """# HELP nv_gpu_utilization GPU utilization rate [0.0 - 1.0)
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{{gpu_uuid="GPU-1b2c"}} {:f}
nv_gpu_utilization{{gpu_uuid="GPU-77aa"}} 0.000000
# HELP nv_gpu_memory_total_bytes GPU total memory, in bytes
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{{gpu_uuid="GPU-1b2c"}} 150754820096.000000
"""


def snapshot(at: float, requests: int | None, page: str = "") -> Snapshot:
    counters = Counters(times={"success": (requests or 0, 0)})
    return Snapshot(
        at=at,
        counters={} if requests is None else {"m": counters},
        server_cpu=at,
        busy=None,
        client_cpu=(at, at),
        gpu=gpu_utilization(page),
    )


def test_a_split_lies_between_borders_that_tell_of_all_models() -> None:
    def both(at: float, **requests: int) -> Snapshot:
        counters = {name: Counters(times={"success": (count, 0)}) for name, count in requests.items()}
        return replace(snapshot(at, None), counters=counters)

    whole = [both(0.0, e=1, m=1), both(1.0, e=2, m=2), both(2.0, e=3, m=3)]
    assert snapshots.covering(whole, ("e", "m")) == whole
    assert snapshots.covering(whole, ("e", "m", "silent")) == whole, "nothing is known of it at any time"
    assert snapshots.covering([*whole, both(3.0, e=4)], ("e", "m")) == whole, "a step was unloaded"
    assert snapshots.covering([*whole, both(3.0, e=4, m=0), both(4.0, e=5, m=1)], ("e", "m")) == whole
    assert snapshots.covering([both(0.0), *whole], ("e", "m")) == whole
    assert snapshots.covering([both(0.0), both(1.0, m=1)], ("e", "m")) == []


def test_gpu_readings_of_the_time_before_the_windows_do_not_count() -> None:
    readings = [snapshot(n, n, PAGE.format(value)) for n, value in enumerate((0.0, 0.86, 0.88))]
    assert snapshots.mean_gpu(readings) == {"GPU-1b2c": 0.87, "GPU-77aa": 0.0}
    assert snapshots.mean_gpu(readings[:1]) == {}
    late = [snapshot(0, 0), snapshot(1, 1), snapshot(2, 2, PAGE.format(0.5))]
    assert snapshots.mean_gpu(late)["GPU-1b2c"] == 0.5, "a page that was not there once is left out"


def test_a_server_that_is_gone_is_known_until_its_last_reading() -> None:
    readings = [snapshot(0.0, 0), snapshot(1.0, 10), snapshot(2.0, 20), snapshot(3.0, None)]
    assert snapshots.consistent(readings, "m") == readings[:3]
    ended, kinds = np.array([0.5, 1.5, 2.5, 2.9]), np.array([0, 0, 0, 1])
    assert snapshots.truncate_at_restart(readings, "m", ended, kinds) == readings[:3]
    assert snapshots.consistent(readings, "another") == []


def test_a_server_that_is_gone_in_the_first_window_is_measured_until_its_last_answer() -> None:
    readings = [snapshot(10.0, 0), snapshot(20.0, None)]
    ended, kinds = np.array([9.0, 11.0, 12.5, 19.0]), np.array([0, 0, 0, 1])
    first, last = snapshots.truncate_at_restart(readings, "m", ended, kinds)
    assert first is readings[0]
    assert 12.5 < last.at < 12.500001, "the last answer is inside"
    assert (last.counters, last.server_cpu, last.client_cpu) == ({}, None, ())
    nothing = np.array([1, 1, 1, 1])
    assert snapshots.truncate_at_restart(readings, "m", ended, nothing) == readings


def test_counters_that_fall_are_another_server() -> None:
    readings = [snapshot(0.0, 100), snapshot(1.0, 110), snapshot(2.0, 4), snapshot(3.0, 14)]
    assert snapshots.restarted(readings[1], readings[2], "m")
    assert snapshots.consistent(readings, "m") == readings[:2]
    assert not snapshots.restarted(readings[0], snapshot(1.0, None), "m")
