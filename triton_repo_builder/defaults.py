"""Defaults by hardware: every value that the user left open, with its reason.

The rules come from measurements on two CPU cores (docs/benchmarks/) and, for GPUs, from NVIDIA's advice;
the reason stands beside the value in config.pbtxt and in ``trb build --explain``.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton_repo_builder.hardware import Hardware
from triton_repo_builder.options import DEFAULT_MAX_BATCH_SIZE, BuildOptions

LARGEST = 128
SMALLEST = 8


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A value and why it was chosen."""

    value: int | str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of a build that depend on the machine."""

    device: Setting
    kind: str
    """KIND_CPU or KIND_GPU."""
    instances: Setting
    threads: Setting
    max_batch_size: Setting
    batching: Setting
    """``on`` or ``off``: whether the model joins requests."""
    tokenizer_instances: Setting

    def explained(self) -> tuple[tuple[str, Setting], ...]:
        """(name, setting) of each, in the order in which one reads them."""
        names = ("device", "instances", "threads", "max_batch_size", "batching", "tokenizer_instances")
        return tuple((name.replace("_", "-"), getattr(self, name)) for name in names)


def decide(options: BuildOptions, machine: Hardware, *, model_bytes: int) -> Settings:
    """The user's values, and for each that is missing the rule for the device."""
    device = _device(options, machine)
    gpu = device.value == "gpu"
    cores = machine.cores
    return Settings(
        device=device,
        kind="KIND_GPU" if gpu else "KIND_CPU",
        instances=_given("instances", options.instances)
        or (
            Setting(value=1, reason="one instance fills a GPU by batching; more only take memory")
            if gpu
            else Setting(value=cores, reason=f"one per core of this machine ({cores}), each with one thread")
        ),
        threads=_given("threads", options.threads)
        or Setting(value=1, reason="threads of several instances would compete for the same cores"),
        max_batch_size=_given("max_batch_size", options.max_batch_size)
        or (_largest(machine, model_bytes) if gpu else _CPU_BATCH),
        batching=_batching(options, gpu),
        tokenizer_instances=_given("tokenizer_instances", options.tokenizer_instances)
        or Setting(value=1, reason="one instance encodes all waiting texts in one call, on all cores"),
    )


_CPU_BATCH = Setting(value=DEFAULT_MAX_BATCH_SIZE, reason="a common limit; a request may carry as many texts")


def _device(options: BuildOptions, machine: Hardware) -> Setting:
    if options.device != "auto":
        return Setting(value=options.device, reason=f"--device {options.device}")
    if machine.gpus:
        return Setting(value="gpu", reason=f"this machine has an {machine.gpus[0].name}")
    return Setting(value="cpu", reason="this machine has no NVIDIA GPU; --device gpu builds for one")


def _given(name: str, value: int | None) -> Setting | None:
    if value is None:
        return None
    return Setting(value=value, reason=f"--{name.replace('_', '-')}")


def _largest(machine: Hardware, model_bytes: int) -> Setting:
    """A power of two, by a rule of thumb.

    Activations of a row are taken as an eighth of the weights, and half the memory is kept free.
    """
    if not machine.gpus:
        return Setting(value=64, reason="a start for a GPU that is not here; measure")
    room = machine.gpus[0].bytes // 2 - model_bytes
    rows = SMALLEST
    while rows < LARGEST and rows * 2 * max(model_bytes // 8, 1 << 20) <= room:
        rows *= 2
    memory = machine.gpus[0].bytes >> 30
    return Setting(value=rows, reason=f"fits {memory} GiB with half of it free, by a rule of thumb; measure")


def _batching(options: BuildOptions, gpu: bool) -> Setting:
    if options.batching != "auto":
        return Setting(value=options.batching, reason=f"--batching {options.batching}")
    if gpu:
        return Setting(value="on", reason="a GPU runs a batch in little more time than one row")
    return Setting(
        value="on", reason="joins whatever waits while an instance is busy; a lone request is never delayed"
    )
