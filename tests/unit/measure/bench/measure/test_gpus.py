"""What ``trb bench`` says where it cannot know how busy the GPUs are."""

from __future__ import annotations

import pytest
from bench_values import target

from triton_repo_builder.base import hardware
from triton_repo_builder.measure.bench.measure import gpus
from triton_repo_builder.run.client import statistics

URL = "http://gpu-7:8002/metrics"
COUNTS = 'nv_inference_request_success{model="a model",version="1"} 4\n'
BUSY = COUNTS + 'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.870000\n'
NONE = hardware.Hardware(cores=2, gpus=())
ONE = hardware.Hardware(cores=2, gpus=(hardware.Gpu(name="a GPU", bytes=1),))


def look(
    monkeypatch: pytest.MonkeyPatch,
    page: str,
    *,
    metrics: str = URL,
    on_gpu: bool = False,
    here: hardware.Hardware = NONE,
) -> tuple[str, str]:
    monkeypatch.setattr(statistics, "read_metrics", lambda url: (page, "" if page else "Connection refused"))
    monkeypatch.setattr(hardware, "here", lambda: here)
    return gpus.look(target(metrics=metrics, on_gpu=on_gpu))


def test_a_page_with_gpus_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(monkeypatch, BUSY, on_gpu=True) == (URL, "")


def test_without_a_gpu_nothing_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(monkeypatch, COUNTS) == (URL, "")
    assert look(monkeypatch, "", metrics="") == ("", "")


def test_why_utilisation_is_unknown_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    _, note = look(monkeypatch, COUNTS, on_gpu=True)
    assert note.startswith(f"GPU utilisation is unknown: the metrics page {URL} has no nv_gpu_utilization")
    _, note = look(monkeypatch, COUNTS, here=ONE)
    assert "has no nv_gpu_utilization" in note, "the server is on this machine, which has one"
    url, note = look(monkeypatch, "")
    assert (url, "cannot be read (Connection refused)" in note) == ("", True)
    _, note = look(monkeypatch, "", metrics="", on_gpu=True)
    assert note.endswith("no metrics page is named")


def test_another_servers_page_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    url, note = look(monkeypatch, BUSY.replace("a model", "another"))
    assert (url, "to a server without the model a model" in note) == ("", True)


def test_the_reason_is_that_of_the_connection() -> None:
    page, reason = statistics.read_metrics("http://127.0.0.1:9/metrics")
    assert (page, "refused" in reason) == ("", True)
