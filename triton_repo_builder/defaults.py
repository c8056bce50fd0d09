"""Defaults by hardware: every value that the user left open, with its reason.

The rules come from measurements on two CPU cores (docs/benchmarks/) and, for GPUs, from NVIDIA's advice;
the reason stands beside the value in config.pbtxt and in ``trb build --explain``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from triton_repo_builder.hardware import Hardware
from triton_repo_builder.options import DEFAULT_MAX_BATCH_SIZE, BuildOptions

LARGEST = 128
SMALLEST = 8
TOKENS = 512
"""Of the longest text, up to which a row's activations are taken as an eighth of the weights."""
LENGTHS_MIX = (
    "joins any lengths; the embedded engine runs similar ones together, Triton's own backend pads to the "
    "longest: on a CPU measure --batching off there, too"
)


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
        """(name, setting) of each that this model has, in the order in which one reads them."""
        names = ("device", "instances", "threads", "max_batch_size", "batching", "tokenizer_instances")
        found = ((name.replace("_", "-"), getattr(self, name)) for name in names)
        return tuple((name, setting) for name, setting in found if setting.reason)

    def without_tokenizer(self) -> Settings:
        """For a model that is the endpoint."""
        return replace(self, tokenizer_instances=Setting(value=0, reason=""))

    def unbatched(self, why: str) -> Settings:
        """For a model that takes one row at a time, or whose first axis is no batch."""
        return replace(
            self,
            max_batch_size=Setting(value=0, reason=f"no batch axis: {why}"),
            batching=Setting(value="off", reason=why),
        )

    def of_any_length(self) -> Settings:
        """For rows of any length in one batch: what joining them costs depends on who runs them."""
        if self.kind == "KIND_GPU" or self.batching.reason != _JOINS.reason:
            return self
        return replace(self, batching=Setting(value="on", reason=LENGTHS_MIX))


def decide(
    options: BuildOptions, machine: Hardware, *, model_bytes: int, tokens: int | None = None
) -> Settings:
    """The user's values, and for each that is missing the rule for the device.

    ``tokens``: of the longest text that the model takes, where it takes texts and a file tells.
    """
    device = _device(options, machine)
    gpu = device.value == "gpu"
    return Settings(
        device=device,
        kind="KIND_GPU" if gpu else "KIND_CPU",
        instances=_given("instances", options.instances) or _instances(options, machine.cores, gpu),
        threads=_given("threads", options.threads) or _threads(options, machine.cores, gpu),
        max_batch_size=_given("max_batch_size", options.max_batch_size)
        or (_largest(machine, model_bytes, tokens or 0) if gpu else _CPU_BATCH),
        batching=_batching(options, gpu),
        tokenizer_instances=_given("tokenizer_instances", options.tokenizer_instances)
        or Setting(value=1, reason="one instance encodes all waiting texts in one call, on all cores"),
    )


_CPU_BATCH = Setting(value=DEFAULT_MAX_BATCH_SIZE, reason="a common limit; a request may carry as many texts")


def _device(options: BuildOptions, machine: Hardware) -> Setting:
    if options.device != "auto":
        return Setting(value=options.device, reason=f"set by --device {options.device}")
    if machine.gpus:
        return Setting(value="gpu", reason=f"this machine's GPU is: {machine.gpus[0].name}")
    return Setting(value="cpu", reason="this machine has no NVIDIA GPU; --device gpu builds for one")


def _given(name: str, value: int | None) -> Setting | None:
    if value is None:
        return None
    return Setting(value=value, reason=f"set by --{name.replace('_', '-')}")


def _instances(options: BuildOptions, cores: int, gpu: bool) -> Setting:
    if gpu:
        return Setting(value=1, reason="one instance fills a GPU by batching; more only take memory")
    if options.threads == 0:
        return Setting(value=1, reason="its threads take all cores")
    if options.threads is not None and options.threads > 1:
        count = max(1, cores // options.threads)
        reason = f"as many as the {cores} cores of this machine hold with {options.threads} threads each"
        return Setting(value=count, reason=reason)
    return Setting(value=cores, reason=f"one per core of this machine ({cores}), each with one thread")


def _threads(options: BuildOptions, cores: int, gpu: bool) -> Setting:
    if gpu:
        return Setting(value=1, reason="the GPU computes; one thread of the CPU feeds it")
    if options.instances is not None and options.instances < cores:
        share = cores // options.instances
        return Setting(
            value=share, reason=f"what each of {options.instances} gets of this machine's {cores} cores"
        )
    return Setting(value=1, reason="threads of several instances would compete for the same cores")


def _largest(machine: Hardware, model_bytes: int, tokens: int) -> Setting:
    """A power of two, by a rule of thumb.

    Activations of a row are taken as an eighth of the weights, more for texts of over 512 tokens, and half
    the memory of the smallest GPU is kept free: the model gets an instance on each.
    """
    if not machine.gpus:
        return Setting(value=64, reason="a start for a GPU that is not here; measure")
    smallest = min(gpu.bytes for gpu in machine.gpus)
    if not smallest:
        return Setting(value=64, reason="a start: nvidia-smi does not tell the GPU's memory; measure")
    room = smallest // 2 - model_bytes
    row = max(model_bytes // 8, 1 << 20) * max(tokens, TOKENS) // TOKENS
    rows = SMALLEST
    while rows < LARGEST and rows * 2 * row <= room:
        rows *= 2
    memory = f"{smallest >> 30} GiB"
    if rows * row > room:
        return Setting(value=rows, reason=f"a start: it is a large model for {memory}; measure")
    return Setting(value=rows, reason=f"fits {memory} with half of it free, by a rule of thumb; measure")


def _batching(options: BuildOptions, gpu: bool) -> Setting:
    if options.batching != "auto":
        return Setting(value=options.batching, reason=f"set by --batching {options.batching}")
    if options.max_batch_size == 1:
        return Setting(value="off", reason="there is nothing to join with --max-batch-size 1")
    if gpu:
        return Setting(value="on", reason="a GPU runs a batch in little more time than one row")
    return _JOINS


_JOINS = Setting(
    value="on", reason="joins whatever waits while an instance is busy; a lone request is never delayed"
)
