from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder.base import hardware, process
from triton_repo_builder.base.hardware import Gpu, Hardware
from triton_repo_builder.endpoint.plan import defaults
from triton_repo_builder.endpoint.plan.defaults import ModelFacts
from triton_repo_builder.endpoint.plan.reasons import Why, because
from triton_repo_builder.endpoint.tasks.task import Kind
from triton_repo_builder.model.graph.parts import Rows
from triton_repo_builder.model.read.options import BuildOptions

CPU = Hardware(cores=6, gpus=())
GPU = Hardware(cores=16, gpus=(Gpu(name="NVIDIA H200", bytes=141 << 30),))


FACTS = ModelFacts(kind=Kind.TEXT, bytes=90 << 20)
ONLY = because(Why.EQUAL_SHAPES, inputs="'X'")


def decide(
    machine: Hardware, model_bytes: int = 90 << 20, facts: ModelFacts = FACTS, **options: Any
) -> defaults.ServingSettings:
    build_options = BuildOptions(model=Path("m.onnx"), **options)
    return defaults.decide(build_options, machine, replace(facts, bytes=model_bytes))


def values(settings: defaults.ServingSettings) -> dict[str, int | str]:
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
    assert settings.instances.reason == "one per core of this machine (6), each with one thread"


@pytest.mark.parametrize(
    ("cores", "rows", "integer", "instances", "threads"),
    [
        (1, Rows.PACKED, False, 1, 1),
        (2, Rows.PACKED, False, 1, 2),
        (6, Rows.PACKED, False, 1, 6),
        (8, Rows.PACKED, False, 2, 4),
        (8, Rows.PACKED, True, 8, 1),
        (8, Rows.GROUPS, False, 8, 1),
    ],
)
def test_cores_compute_a_batch_without_padding_together(
    cores: int, rows: Rows, integer: bool, instances: int, threads: int
) -> None:
    settings = decide(Hardware(cores=cores, gpus=()), facts=replace(FACTS, rows=rows, integer=integer))
    assert (settings.instances.value, settings.threads.value) == (instances, threads)


def test_a_gpu_gets_one_instance_and_batches_that_fit() -> None:
    settings = decide(GPU)
    assert (settings.kind, settings.instances.value, settings.batching.value) == ("KIND_GPU", 1, "on")
    assert settings.max_batch_size.value == 128
    assert "141 GiB" in settings.max_batch_size.reason
    assert "NVIDIA H200" in settings.device.reason


@pytest.mark.parametrize(
    ("gib", "rows", "fits"), [(1, 128, True), (16, 16, True), (35, 8, True), (40, 8, False), (60, 8, False)]
)
def test_a_larger_model_leaves_room_for_fewer_rows(gib: int, rows: int, fits: bool) -> None:
    setting = decide(GPU, gib << 30).max_batch_size
    assert setting.value == rows
    assert setting.reason == (
        "fits 141 GiB with half of it free, by a rule of thumb; measure"
        if fits
        else "a start: it is a large model for 141 GiB; measure"
    )


def test_longer_texts_leave_room_for_fewer_rows() -> None:
    options = BuildOptions(model=Path("m.onnx"))

    def rows(tokens: int | None) -> int | str:
        facts = ModelFacts(kind=Kind.TEXT, bytes=600 << 20, tokens=tokens)
        return defaults.decide(options, GPU, facts).max_batch_size.value

    assert (rows(None), rows(128), rows(512), rows(8192)) == (128, 128, 128, 32)


def test_the_smallest_gpu_decides() -> None:
    both = Hardware(cores=16, gpus=(*GPU.gpus, Gpu(name="Tesla T4", bytes=15 << 30)))
    assert decide(both, 4 << 30).max_batch_size.reason == "a start: it is a large model for 15 GiB; measure"


def test_a_gpu_that_does_not_tell_its_memory() -> None:
    machine = Hardware(cores=16, gpus=(Gpu(name="NVIDIA GB10", bytes=0),))
    setting = decide(machine).max_batch_size
    assert (setting.value, setting.why.why) == (64, Why.GPU_MEMORY_UNKNOWN)


@pytest.mark.parametrize(
    ("given", "instances", "threads", "why"),
    [
        ({"instances": 1}, 1, 6, "one for each of this machine's 6 cores: there is one instance"),
        ({"instances": 4}, 4, 1, "what each of 4 gets of this machine's 6 cores"),
        ({"instances": 9}, 9, 1, "threads of several instances would compete for the same cores"),
        ({"threads": 1}, 6, 1, "one per core of this machine (6), each with one thread"),
        ({"threads": 2}, 3, 2, "as many as this machine's 6 cores hold with 2 threads each"),
        ({"threads": 6}, 1, 6, "as many as this machine's 6 cores hold with 6 threads each"),
        ({"threads": 8}, 1, 8, "its 8 threads are more than this machine's 6 cores"),
        ({"threads": 0}, 1, 0, "its threads take all cores"),
    ],
)
def test_instances_and_threads_share_the_cores(
    given: dict[str, int], instances: int, threads: int, why: str
) -> None:
    settings = decide(CPU, **given)
    assert (settings.instances.value, settings.threads.value) == (instances, threads)
    assert why in (settings.instances.reason, settings.threads.reason)


@pytest.mark.parametrize(
    ("machine", "reasons"),
    [
        (
            Hardware(cores=1, gpus=(), machine_cores=2),
            (
                "one per core that this process may use (1 of 2), with one thread",
                "there is one core to use",
                "its 4 threads are more than the cores that this process may use (1 of 2)",
            ),
        ),
        (
            Hardware(cores=2, gpus=(), machine_cores=8, quota=1.5),
            (
                "one per core that this process may use (2 of 8; the CPU quota of its control group is 1.5), "
                "each with one thread",
                "threads of several instances would compete for the same cores",
                "its 4 threads are more than the cores that this process may use (2 of 8; the CPU quota of "
                "its control group is 1.5)",
            ),
        ),
        (
            Hardware(cores=1, gpus=()),
            (
                "one per core of this machine (1), with one thread",
                "there is one core to use",
                "its 4 threads are more than this machine's only core",
            ),
        ),
    ],
)
def test_cores_that_this_process_may_not_use(machine: Hardware, reasons: tuple[str, str, str]) -> None:
    settings, four = decide(machine), decide(machine, threads=4)
    assert settings.instances.value == machine.cores
    assert (settings.instances.reason, settings.threads.reason, four.instances.reason) == reasons


def test_there_is_nothing_to_join_with_one_row() -> None:
    settings = decide(CPU, max_batch_size=1)
    assert settings.batching.value == "off"
    assert settings.preprocess_instances is not None
    assert settings.preprocess_instances.why.why is Why.ONE_TEXT
    given = decide(CPU, max_batch_size=1, tokenizer_instances=2).preprocess_instances
    assert given is not None
    assert given.value == 2


def test_a_lone_request_waits_where_the_user_says_so() -> None:
    assert decide(CPU).batching.why.why is Why.JOINS
    assert decide(CPU, max_queue_delay=200).batching.why.why is Why.JOINS_DELAYED


def test_what_can_be_joined() -> None:
    some = replace(FACTS, joins=ONLY)
    assert decide(CPU, facts=some).batching.reason == str(ONLY)
    assert decide(GPU, facts=some).batching.reason.endswith(f"than one row; {ONLY}")
    asked = decide(CPU, facts=some, batching="on").batching.reason
    assert asked == f"set by --batching on; {ONLY}"
    assert decide(CPU, facts=some, batching="off") == decide(CPU, batching="off")


def test_what_a_request_carries() -> None:
    images, rows = (replace(FACTS, kind=kind) for kind in (Kind.IMAGE, Kind.TENSOR))
    assert decide(CPU).max_batch_size.reason == "a common limit; a request may carry as many texts"
    reason = decide(CPU, facts=images).max_batch_size.reason
    assert reason == "a common limit; a request may carry as many images"
    reason = decide(CPU, facts=rows).max_batch_size.reason
    assert reason == "a common limit; a request may carry as many rows"
    for machine, options in ((CPU, {"max_batch_size": 3}), (GPU, {})):
        given = decide(machine, facts=images, **options).max_batch_size
        assert given == decide(machine, **options).max_batch_size


def test_who_set_it() -> None:
    origins = {"device": "trb.toml", "threads": "trb.toml", "batching": "trb.toml"}
    settings = decide(CPU, device="cpu", threads=2, instances=2, batching="on", origins=origins)
    assert {name: setting.reason for name, setting in settings.explained()[:3]} == {
        "device": "set in trb.toml",
        "instances": "set by --instances; 2 instances with 2 threads each fit this machine's 6 cores",
        "threads": "set in trb.toml",
    }
    assert settings.batching.reason == "set in trb.toml"


@pytest.mark.parametrize(
    ("cores", "instances", "threads", "exceeds"),
    [
        (2, 2, None, ""),
        (2, 8, None, "8 instances with 1 thread each"),
        (2, 2, 0, "2 instances with 2 threads"),
        (6, 1, None, ""),
    ],
)
def test_instances_of_the_user_beside_this_machines_cores(
    cores: int, instances: int, threads: int | None, exceeds: str
) -> None:
    settings = decide(Hardware(cores=cores, gpus=()), instances=instances, threads=threads)
    said = dict(settings.explained())["instances"].reason
    assert said.startswith("set by --instances; ")
    assert f"this machine's {cores} cores" in said
    assert bool(settings.warning) == bool(exceeds)
    assert exceeds in settings.warning
    assert settings.instances.reason == "set by --instances"  # what is written depends on no machine
    assert decide(GPU, instances=instances, threads=threads).cores is None


def test_reasons_follow_what_the_model_can_do() -> None:
    alone = replace(FACTS, obstacle="rows depend on each other")
    settings = decide(CPU, facts=alone)
    assert (settings.max_batch_size.value, settings.batching.value) == (0, "off")
    assert "rows depend" in settings.max_batch_size.reason
    assert settings.preprocess_instances is not None
    assert settings.preprocess_instances.why.why is Why.ONE_TEXT
    given = decide(CPU, facts=alone, tokenizer_instances=2).preprocess_instances
    assert given is not None
    assert given.reason == "set by --tokenizer-instances"
    ragged = replace(FACTS, rows=Rows.GROUPS)
    assert decide(CPU, facts=ragged).batching.why.why is Why.LENGTHS_MIX
    packed = replace(FACTS, rows=Rows.PACKED)
    assert decide(CPU, facts=packed).batching.why.why is Why.NO_PADDING
    single = replace(FACTS, rows=Rows.SINGLE)
    assert decide(CPU, facts=single).batching.why.why is Why.ROW_BY_ROW
    assert decide(CPU, facts=ragged, batching="on").batching.reason == "set by --batching on"
    assert decide(GPU, facts=ragged) == decide(GPU)
    assert "tokenizer-instances" not in values(decide(CPU, facts=replace(FACTS, kind=Kind.TENSOR)))


def test_a_gpu_that_is_elsewhere() -> None:
    settings = decide(CPU, device="gpu")
    assert (settings.kind, settings.max_batch_size.value) == ("KIND_GPU", 64)


def test_a_gpu_that_cuda_does_not_see() -> None:
    hidden = Hardware(cores=16, gpus=(), hidden=GPU.gpus)
    device = decide(hidden).device
    assert device.value == "cpu"
    assert (
        device.reason
        == "CUDA_VISIBLE_DEVICES hides what this machine has (NVIDIA H200); --device gpu builds for one"
    )
    assert decide(CPU).device.reason == "this machine has no NVIDIA GPU; --device gpu builds for one"


def test_what_the_user_gave_stands_and_says_so() -> None:
    settings = decide(GPU, device="cpu", instances=3, threads=0, max_batch_size=4, batching="off")
    assert settings.kind == "KIND_CPU"
    assert (settings.instances.value, settings.threads.value, settings.max_batch_size.value) == (3, 0, 4)
    assert (settings.batching.value, settings.batching.reason) == (
        "off",
        "set by --batching off; no model of the endpoint joins requests, but one request may have several "
        "rows; "
        "--max-batch-size 1 takes one",
    )
    assert settings.instances.reason == "set by --instances"


def test_gpus_are_those_that_nvidia_smi_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(process, "run", lambda argv, timeout: "NVIDIA H200, 143771, GPU-1\nodd line\n")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert hardware.here().gpus == (Gpu(name="NVIDIA H200", bytes=143771 << 20, uuid="GPU-1"),)


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("1", ["B"]),
        ("1,0", ["B", "A"]),
        ("", []),
        ("-1", []),
        ("0,7,1", ["A"]),
        ("GPU-1d8f", ["A"]),
        ("GPU-2, GPU-1d8f0000", ["B", "A"]),
        ("GPU-2,GPU-nosuch,GPU-1d8f", ["B"]),
        ("GPU-nosuch", []),
        ("GPU-", []),  # of several
        ("none", []),
        ("MIG-5a3b", ["a MIG device"]),
    ],
)
def test_gpus_that_cuda_may_not_see_do_not_count(
    visible: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(process, "run", lambda argv, timeout: "A, 143771, GPU-1d8f0000\nB, [N/A], GPU-2\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    machine = hardware.here()
    assert [gpu.name for gpu in machine.gpus] == names
    assert [gpu.name for gpu in machine.hidden] == ([] if names else ["A", "B"])


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


@pytest.mark.parametrize(
    ("quota", "wanted"),
    [
        (None, (2, 8, None)),
        (0.1, (1, 8, 0.1)),
        (1.0, (1, 8, 1.0)),
        (1.01, (2, 8, None)),  # the affinity allows no more
        (6.0, (2, 8, None)),
    ],
)
def test_cores_are_those_that_affinity_and_quota_leave(
    quota: float | None, wanted: tuple[int, int, float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(process, "run", lambda argv, timeout: "")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5})
    monkeypatch.setattr(hardware, "cpu_quota", lambda: quota)
    machine = hardware.here()
    assert (machine.cores, machine.machine_cores, machine.quota) == wanted
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    machine = hardware.here()
    assert machine.cores == (8 if quota is None else max(1, -(-quota // 1)))
    assert bool(machine.limit) == (quota is not None)
