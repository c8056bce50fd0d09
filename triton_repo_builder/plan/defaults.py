"""Defaults by hardware: every value that the user left open, with its reason.

The rules come from measurements on two CPU cores (docs/benchmarks/) and, for GPUs, from NVIDIA's advice;
the reason stands beside the value in config.pbtxt and in ``trb build --explain``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from triton_repo_builder.hardware import Hardware
from triton_repo_builder.read.options import DEFAULT_MAX_BATCH_SIZE, BuildOptions

LARGEST = 128
SMALLEST = 8
TOKENS = 512
"""Of the longest text, up to which a row's activations are taken as an eighth of the weights."""
JOINS = "joins whatever waits while an instance is busy"
LENGTHS_MIX = (
    "joins any lengths; the embedded engine runs similar ones together, Triton's own backend pads to the "
    "longest: on a CPU measure --batching off there, too"
)
PADDED_TOGETHER = "joins waiting requests that the tokenizer padded together: only they have one shape"
EQUAL_LENGTHS = (
    "joins waiting requests of equal length only: texts of mixed lengths run nearly one by one "
    "(1.02 rows per execution, measured with 32 clients)"
)
EQUAL_SHAPES = "joins waiting requests of equal shape only, and the model has inputs of open shape"
ROWS = "a common limit; a request may carry as many "
ONE_TEXT = "one instance encodes one text in a call: there are no batches"


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
    padding: Setting
    """How texts of different length become rows; without a reason for what takes no texts."""

    def explained(self) -> tuple[tuple[str, Setting], ...]:
        """(name, setting) of each that this model has, in the order in which one reads them."""
        names = (
            "device",
            "instances",
            "threads",
            "max_batch_size",
            "batching",
            "padding",
            "tokenizer_instances",
        )
        found = ((name.replace("_", "-"), getattr(self, name)) for name in names)
        return tuple((name, setting) for name, setting in found if setting.reason)

    def without_tokenizer(self) -> Settings:
        """For a model that is the endpoint."""
        return replace(self.carrying("rows"), tokenizer_instances=Setting(value=0, reason=""))

    def carrying(self, what: str) -> Settings:
        """For requests that carry something else than texts."""
        if not self.max_batch_size.reason.startswith(ROWS):
            return self
        return replace(self, max_batch_size=replace(self.max_batch_size, reason=ROWS + what))

    def unbatched(self, why: str) -> Settings:
        """For a model that takes one row at a time, or whose first axis is no batch."""
        return replace(
            self,
            max_batch_size=Setting(value=0, reason=f"no batch axis: {why}"),
            batching=Setting(value="off", reason=why),
            tokenizer_instances=replace(self.tokenizer_instances, reason=ONE_TEXT)
            if self.tokenizer_instances == _TOKENIZER
            else self.tokenizer_instances,
        )

    def joining(self, only: str) -> Settings:
        """Where Triton, which joins requests of equal shape, cannot join all: what it joins."""
        if self.batching.value != "on":
            return self
        asked = not self.batching.reason.startswith(JOINS)
        reason = f"{self.batching.reason}; {only}" if asked else only
        return replace(self, batching=Setting(value="on", reason=reason))

    def of_any_length(self) -> Settings:
        """For rows of any length in one batch: what joining them costs depends on who runs them."""
        if self.kind == "KIND_GPU" or not self.batching.reason.startswith(JOINS):
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
    instances = _given(options, "instances") or _instances(options, machine, gpu)
    return Settings(
        device=device,
        kind="KIND_GPU" if gpu else "KIND_CPU",
        instances=instances,
        threads=_given(options, "threads") or _threads(options, machine, gpu),
        max_batch_size=_given(options, "max_batch_size")
        or (_largest(machine, model_bytes, tokens or 0) if gpu else _CPU_BATCH),
        batching=_batching(options, gpu),
        tokenizer_instances=_given(options, "tokenizer_instances")
        or (Setting(value=1, reason=ONE_TEXT) if options.max_batch_size == 1 else _TOKENIZER),
        padding=Setting(value=options.padding, reason=""),
    )


_CPU_BATCH = Setting(value=DEFAULT_MAX_BATCH_SIZE, reason=ROWS + "texts")
_TOKENIZER = Setting(value=1, reason="one instance encodes all waiting texts in one call, on all cores")


def told(options: BuildOptions, field: str, value: str = "") -> str:
    """Who set an option: the command line, or a file."""
    file = options.origins.get(field)
    return f"set in {file}" if file else f"set by --{field.replace('_', '-')} {value}".rstrip()


def _device(options: BuildOptions, machine: Hardware) -> Setting:
    if options.device != "auto":
        return Setting(value=options.device, reason=told(options, "device", options.device))
    if machine.gpus:
        return Setting(value="gpu", reason=f"this machine's GPU is: {machine.gpus[0].name}")
    if machine.hidden:
        names = ", ".join(gpu.name for gpu in machine.hidden)
        why = f"CUDA_VISIBLE_DEVICES hides what this machine has ({names})"
    else:
        why = "this machine has no NVIDIA GPU"
    return Setting(value="cpu", reason=f"{why}; --device gpu builds for one")


def _given(options: BuildOptions, field: str) -> Setting | None:
    value = getattr(options, field)
    return None if value is None else Setting(value=value, reason=told(options, field))


def _instances(options: BuildOptions, machine: Hardware, gpu: bool) -> Setting:
    if gpu:
        return Setting(value=1, reason="one instance fills a GPU by batching; more only take memory")
    if options.threads == 0:
        return Setting(value=1, reason="its threads take all cores")
    cores = machine.cores
    if options.threads is not None and options.threads > cores:
        return Setting(value=1, reason=f"its {options.threads} threads are more than {machine.told}")
    if options.threads is not None and options.threads > 1:
        reason = f"as many as {machine.told} hold with {options.threads} threads each"
        return Setting(value=cores // options.threads, reason=reason)
    each = "each with one thread" if cores > 1 else "with one thread"
    whose = f"that this process may use ({machine.limit})" if machine.limit else f"of this machine ({cores})"
    return Setting(value=cores, reason=f"one per core {whose}, {each}")


def _threads(options: BuildOptions, machine: Hardware, gpu: bool) -> Setting:
    if gpu:
        return Setting(value=1, reason="the GPU computes; one thread of the CPU feeds it")
    count = machine.cores if options.instances is None else options.instances
    if count < machine.cores:
        share = f"what each of {count} gets of {machine.told}"
        reason = share if count > 1 else f"one for each of {machine.told}: there is one instance"
        return Setting(value=machine.cores // count, reason=reason)
    if count == 1:
        return Setting(value=1, reason="there is one core to use")
    return Setting(value=1, reason="threads of several instances would compete for the same cores")


def _largest(machine: Hardware, model_bytes: int, tokens: int) -> Setting:
    """A power of two, by a rule of thumb.

    Activations of a row are taken as an eighth of the weights, more for texts of over 512 tokens, and half
    the memory of the smallest GPU is kept free: the model gets an instance on each.
    """
    if not machine.gpus:
        return Setting(value=64, reason="a start for a GPU that trb does not see here; measure")
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
        return Setting(value=options.batching, reason=told(options, "batching", options.batching))
    if options.max_batch_size == 1:
        return Setting(value="off", reason="there is nothing to join with a maximum batch size of 1")
    if gpu:
        return Setting(value="on", reason="a GPU runs a batch in little more time than one row")
    waits = "waits for more as long as max_queue_delay says" if options.max_queue_delay else ""
    return Setting(value="on", reason=f"{JOINS}; {waits or 'a lone request is never delayed'}")
