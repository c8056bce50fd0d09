from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder import defaults, hardware, process
from triton_repo_builder.hardware import Gpu, Hardware
from triton_repo_builder.options import BuildOptions

CPU = Hardware(cores=6, gpus=())
GPU = Hardware(cores=16, gpus=(Gpu(name="NVIDIA H200", bytes=141 << 30),))


def decide(machine: Hardware, model_bytes: int = 90 << 20, **options: Any) -> defaults.Settings:
    return defaults.decide(BuildOptions(model=Path("m.onnx"), **options), machine, model_bytes=model_bytes)


def values(settings: defaults.Settings) -> dict[str, int | str]:
    return {name: setting.value for name, setting in settings.explained()}


def test_a_cpu_gets_a_one_thread_instance_per_core() -> None:
    settings = decide(CPU)
    assert settings.kind == "KIND_CPU"
    assert values(settings) == {
        "device": "cpu",
        "instances": 6,
        "threads": 1,
        "max-batch-size": 32,
        "batching": "on",
        "tokenizer-instances": 1,
    }


def test_a_gpu_gets_one_instance_and_batches_that_fit() -> None:
    settings = decide(GPU)
    assert (settings.kind, settings.instances.value, settings.batching.value) == ("KIND_GPU", 1, "on")
    assert settings.max_batch_size.value == 128
    assert "141 GiB" in settings.max_batch_size.reason
    assert "NVIDIA H200" in settings.device.reason


@pytest.mark.parametrize(("gib", "rows"), [(1, 128), (16, 16), (40, 8), (60, 8)])
def test_a_larger_model_leaves_room_for_fewer_rows(gib: int, rows: int) -> None:
    assert decide(GPU, gib << 30).max_batch_size.value == rows


def test_a_gpu_that_is_elsewhere() -> None:
    settings = decide(CPU, device="gpu")
    assert (settings.kind, settings.max_batch_size.value) == ("KIND_GPU", 64)


def test_what_the_user_gave_stands_and_says_so() -> None:
    settings = decide(GPU, device="cpu", instances=3, threads=0, max_batch_size=4, batching="off")
    assert settings.kind == "KIND_CPU"
    assert (settings.instances.value, settings.threads.value, settings.max_batch_size.value) == (3, 0, 4)
    assert (settings.batching.value, settings.batching.reason) == ("off", "--batching off")
    assert settings.instances.reason == "--instances"


def test_gpus_are_those_that_nvidia_smi_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(process, "run", lambda argv, timeout: "NVIDIA H200, 143771\nodd line\n")
    assert hardware.here().gpus == (Gpu(name="NVIDIA H200", bytes=143771 << 20),)


@pytest.mark.parametrize(
    "error", [FileNotFoundError("nvidia-smi"), process.ProcessFailed(["x"], 9, "", "no driver")]
)
def test_no_nvidia_smi_is_no_gpu(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(argv: list[str], timeout: float) -> str:
        raise error

    monkeypatch.undo()
    monkeypatch.setattr(process, "run", failing)
    assert hardware.here().gpus == ()
    assert hardware.here().cores >= 1
