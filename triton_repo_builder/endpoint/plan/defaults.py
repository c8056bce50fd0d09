"""ServingSettings by hardware: every value that the user left open, with its reason.

The rules come from measurements on two CPU cores (docs/benchmarks/) and, for GPUs, from NVIDIA's advice;
the reason is shown beside the value in config.pbtxt and in ``trb build --explain``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from triton_repo_builder.base.hardware import Hardware
from triton_repo_builder.base.text import counted
from triton_repo_builder.endpoint.plan.model import DynamicBatching
from triton_repo_builder.endpoint.plan.reasons import Reason, Why, because, set_by
from triton_repo_builder.endpoint.tasks.task import Kind
from triton_repo_builder.model.graph.parts import Rows
from triton_repo_builder.model.read.options import DEFAULT_MAX_BATCH_SIZE, BuildOptions

LARGEST = 128
SMALLEST = 8
TOKENS = 512
"""Tokens of the longest text up to which a row's activations count as an eighth of the weights."""
TOGETHER = 4
"""Cores that compute one batch together, of a graph without padding in float: its products are large.

docs/benchmarks/instances_threads_cpp.md. A graph that runs row by row, as of 8-bit products, serves more with
an instance on each core.
"""
MIXED = {Rows.GROUPS: Why.LENGTHS_MIX, Rows.PACKED: Why.NO_PADDING, Rows.SINGLE: Why.ROW_BY_ROW}
ITEMS = {
    Kind.TEXT: "texts",
    Kind.IMAGE: "images",
    Kind.IMAGE_AND_TEXT: "images",
    Kind.AUDIO: "files",
    Kind.TENSOR: "rows",
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A value and why it was chosen."""

    value: int | str
    why: Reason

    @property
    def reason(self) -> str:
        """The reason as text."""
        return str(self.why)


@dataclass(frozen=True, kw_only=True)
class ServingSettings:
    """All settings of a build that depend on the machine."""

    device: Setting
    kind: str
    """KIND_CPU or KIND_GPU."""
    instances: Setting
    threads: Setting
    max_batch_size: Setting
    batching: Setting
    """``on`` or ``off``: whether the model joins requests."""
    queue: DynamicBatching
    """Limits of the queue of each model of the endpoint."""
    preferred: Setting | None = None
    queue_delay: Setting | None = None
    queue_size: Setting | None = None
    queue_timeout: Setting | None = None
    priority_levels: Setting | None = None
    padding: Setting | None = None
    """How texts of different length become a batch; None for other inputs."""
    run_tokens: Setting | None = None
    """Tokens that one run of a text model takes; None if its batch is not cut into runs."""
    preprocess_instances: Setting | None = None
    """Instances of the tokenizer or image model; None if there is neither."""
    cores: Reason | None = None
    """How the user's own number of instances fits this machine's cores, on a CPU.

    It is not part of ``instances``: what is written of a stated number is the same on every machine.
    """

    @property
    def joins(self) -> bool:
        """Whether requests are joined, in each model of the endpoint."""
        return self.batching.value == "on"

    def joining(self, max_batch_size: int) -> DynamicBatching | None:
        """For a Python model, which joins requests of any shape; None if there is nothing to join."""
        return self.queue if self.joins and max_batch_size > 1 else None

    @property
    def warning(self) -> str:
        """A note on instances that are too many for this machine; empty if they are not."""
        exceeded = self.cores is not None and self.cores.why is Why.CORES_EXCEEDED
        return f"{self.instances.reason}: {self.cores}" if exceeded else ""

    def explained(self) -> tuple[tuple[str, Setting], ...]:
        """(name, setting) of each that this model has, in the order of the report."""
        instances = self.instances
        if self.cores is not None:
            instances = replace(instances, why=replace(instances.why, limited=self.cores))
        named = (
            ("device", self.device),
            ("instances", instances),
            ("threads", self.threads),
            ("max-batch-size", self.max_batch_size),
            ("batching", self.batching),
            ("preferred-batch-size", self.preferred),
            ("max-queue-delay", self.queue_delay),
            ("max-queue-size", self.queue_size),
            ("queue-timeout", self.queue_timeout),
            ("priority-levels", self.priority_levels),
            ("padding", self.padding),
            ("run-tokens", self.run_tokens),
            ("tokenizer-instances", self.preprocess_instances),
        )
        return tuple((name, setting) for name, setting in named if setting is not None)


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """The model's part in the choice of settings, beside options and machine."""

    kind: Kind
    bytes: int
    tokens: int | None = None
    """Tokens of the longest text, if the model takes texts and a file or option states it."""
    obstacle: str = ""
    """Why the model cannot batch; empty if it can."""
    padding: Setting | None = None
    joins: Reason | None = None
    """Which requests Triton can join, if not all of them."""
    rows: Rows | None = None
    """Which rows the graph sees together, if requests of any length join."""
    integer: bool = False
    """Whether products are of integers."""
    run_tokens: int = 0
    """Tokens of a run, if the graph cuts its batch into runs; else 0."""
    run_memory: str = ""
    """Most that a run takes beside the weights, described."""
    fitting_rows: int = 0
    """Texts of the greatest length that are one run at most, if the graph does not cut its batch; else 0."""


def decide(options: BuildOptions, machine: Hardware, facts: ModelFacts) -> ServingSettings:
    """The user's values, and for each that is missing the rule for the device."""
    device = _device(options, machine)
    gpu = device.value == "gpu"
    instances = _given(options, "instances") or _instances(options, machine, facts, gpu)
    threads = _given(options, "threads") or _threads(machine, int(instances.value), gpu)
    batch = _max_batch_size(options, machine, facts, gpu)
    return ServingSettings(
        device=device,
        kind="KIND_GPU" if gpu else "KIND_CPU",
        instances=instances,
        threads=threads,
        max_batch_size=batch,
        batching=_batching(options, facts, gpu),
        preferred=_preferred(options, facts, int(batch.value)),
        queue_delay=_queued(options, "max_queue_delay", Why.DELAY_UNIT, " µs"),
        queue=DynamicBatching(
            max_queue_size=options.max_queue_size or 0,
            queue_timeout_microseconds=options.queue_timeout,
            priority_levels=options.priority_levels or 0,
        ),
        queue_size=_queued(options, "max_queue_size", Why.QUEUE_SIZE),
        queue_timeout=_queued(options, "queue_timeout", Why.QUEUE_TIMEOUT, " µs"),
        priority_levels=_queued(options, "priority_levels", Why.PRIORITIES),
        padding=facts.padding,
        run_tokens=_run_tokens(options, facts),
        preprocess_instances=_preprocess_instances(options, facts, instances),
        cores=None
        if gpu or options.instances is None
        else _cores(machine, options.instances, int(threads.value)),
    )


def on_gpu(options: BuildOptions, machine: Hardware) -> bool:
    """Whether the model will run on a GPU."""
    return _device(options, machine).value == "gpu"


def _given(options: BuildOptions, field: str) -> Setting | None:
    value = getattr(options, field)
    return None if value is None else Setting(value=value, why=set_by(options, field))


def _device(options: BuildOptions, machine: Hardware) -> Setting:
    if options.device != "auto":
        return Setting(value=options.device, why=set_by(options, "device", options.device))
    if machine.gpus:
        return Setting(value="gpu", why=because(Why.HAS_GPU, gpu=machine.gpus[0].name))
    if machine.hidden:
        names = ", ".join(gpu.name for gpu in machine.hidden)
        return Setting(value="cpu", why=because(Why.GPU_HIDDEN, gpus=names))
    return Setting(value="cpu", why=because(Why.NO_GPU))


def _instances(options: BuildOptions, machine: Hardware, facts: ModelFacts, gpu: bool) -> Setting:
    if gpu:
        return Setting(value=1, why=because(Why.GPU_ONE_INSTANCE))
    if options.threads == 0:
        return Setting(value=1, why=because(Why.THREADS_TAKE_ALL))
    cores = machine.cores
    if options.threads is not None and options.threads > cores:
        why = because(Why.THREADS_EXCEED, threads=options.threads, cores=machine.cores_described)
        return Setting(value=1, why=why)
    if options.threads is not None and options.threads > 1:
        why = because(Why.THREADS_SHARE, threads=options.threads, cores=machine.cores_described)
        return Setting(value=cores // options.threads, why=why)
    if options.threads is None and facts.rows is Rows.PACKED and not facts.integer and cores > 1:
        return Setting(value=max(1, cores // TOGETHER), why=because(Why.CORES_TOGETHER))
    each = "each with one thread" if cores > 1 else "with one thread"
    whose = f"that this process may use ({machine.limit})" if machine.limit else f"of this machine ({cores})"
    return Setting(value=cores, why=because(Why.ONE_PER_CORE, cores=whose, threads=each))


def _threads(machine: Hardware, count: int, gpu: bool) -> Setting:
    if gpu:
        return Setting(value=1, why=because(Why.GPU_ONE_THREAD))
    if count < machine.cores:
        share = because(Why.SHARE_OF_CORES, instances=count, cores=machine.cores_described)
        why = share if count > 1 else because(Why.ALL_CORES, cores=machine.cores_described)
        return Setting(value=machine.cores // count, why=why)
    return Setting(value=1, why=because(Why.ONE_CORE if count == 1 else Why.ONE_THREAD))


def _cores(machine: Hardware, instances: int, threads: int) -> Reason:
    """Whether this machine's cores are enough; 0 threads are as many as there are cores."""
    threads = threads or machine.cores
    why = Why.CORES_EXCEEDED if instances * threads > machine.cores else Why.CORES_SUFFICE
    held = {"instances": counted(instances, "instance"), "threads": counted(threads, "thread")}
    return because(why, **held, cores=machine.cores_described)


def _max_batch_size(options: BuildOptions, machine: Hardware, facts: ModelFacts, gpu: bool) -> Setting:
    if facts.obstacle:
        return Setting(value=0, why=because(Why.NO_BATCH_AXIS, obstacle=facts.obstacle))
    if setting := _given(options, "max_batch_size"):
        return setting
    if gpu:
        return _largest(machine, facts.bytes, facts.tokens or 0)
    if 0 < facts.fitting_rows < DEFAULT_MAX_BATCH_SIZE:
        why = because(Why.RUN_FITS, memory=facts.run_memory)
        return Setting(value=facts.fitting_rows, why=why)
    why = because(Why.COMMON_LIMIT, items=ITEMS[facts.kind])
    return Setting(value=DEFAULT_MAX_BATCH_SIZE, why=why)


def _run_tokens(options: BuildOptions, facts: ModelFacts) -> Setting | None:
    if not facts.run_tokens:
        return None
    why = because(Why.RUN_MEMORY, memory=facts.run_memory)
    if options.run_tokens is not None:
        why = replace(set_by(options, "run_tokens"), limited=why)
    return Setting(value=facts.run_tokens, why=why)


def _largest(machine: Hardware, model_bytes: int, tokens: int) -> Setting:
    """A power of two, by a rule of thumb.

    Activations of a row are taken as an eighth of the weights, more for texts of over 512 tokens, and half
    the memory of the smallest GPU is kept free: the model gets an instance on each.
    """
    if not machine.gpus:
        return Setting(value=64, why=because(Why.GPU_UNSEEN))
    smallest = min(gpu.bytes for gpu in machine.gpus)
    if not smallest:
        return Setting(value=64, why=because(Why.GPU_MEMORY_UNKNOWN))
    room = smallest // 2 - model_bytes
    row = max(model_bytes // 8, 1 << 20) * max(tokens, TOKENS) // TOKENS
    rows = SMALLEST
    while rows < LARGEST and rows * 2 * row <= room:
        rows *= 2
    kind = Why.GPU_MEMORY_SHORT if rows * row > room else Why.GPU_MEMORY_FITS
    return Setting(value=rows, why=because(kind, memory=f"{smallest >> 30} GiB"))


def _batching(options: BuildOptions, facts: ModelFacts, gpu: bool) -> Setting:
    if facts.obstacle:
        return Setting(value="off", why=because(Why.CANNOT_BATCH, obstacle=facts.obstacle))
    if options.batching == "off":
        rows = Why.ONE_ROW if options.max_batch_size == 1 else Why.ROWS_OF_A_REQUEST
        return Setting(value="off", why=replace(set_by(options, "batching", "off"), limited=because(rows)))
    if options.batching == "auto" and options.max_batch_size == 1:
        return Setting(value="off", why=because(Why.NOTHING_TO_JOIN))
    if options.batching == "on":
        why = set_by(options, "batching", "on")
    elif gpu:
        why = because(Why.GPU_BATCHES)
    else:
        # On a CPU, what can be joined is the reason itself.
        joins = because(Why.JOINS_DELAYED if options.max_queue_delay else Why.JOINS)
        mixed = because(MIXED[facts.rows]) if facts.rows in MIXED else joins
        return Setting(value="on", why=facts.joins or mixed)
    return Setting(value="on", why=replace(why, limited=facts.joins))


def _preferred(options: BuildOptions, facts: ModelFacts, limit: int) -> Setting | None:
    """Sizes to wait for; Triton joins no more rows than the largest of them."""
    sizes = options.preferred_batch_size
    if not sizes or facts.obstacle:
        return None
    kind = Why.PREFERRED_CAPS if max(sizes) < limit else Why.PREFERRED_REACHES
    caps = because(kind, most=max(sizes), items=ITEMS[facts.kind], limit=limit)
    why = replace(set_by(options, "preferred_batch_size"), limited=caps)
    return Setting(value=",".join(map(str, sizes)), why=why)


def _queued(options: BuildOptions, field: str, why: Why, unit: str = "") -> Setting | None:
    """An option of the queue, if it was set."""
    if not (value := getattr(options, field)):
        return None
    return Setting(value=f"{value}{unit}", why=replace(set_by(options, field), limited=because(why)))


def _preprocess_instances(options: BuildOptions, facts: ModelFacts, instances: Setting) -> Setting | None:
    if facts.kind is Kind.TENSOR:
        return None
    if setting := _given(options, "tokenizer_instances"):
        return setting
    if facts.kind in (Kind.IMAGE, Kind.AUDIO):
        return Setting(value=instances.value, why=because(Why.DECODING))
    alone = bool(facts.obstacle) or options.max_batch_size == 1
    if not alone and options.batching == "off":
        return Setting(value=1, why=because(Why.TEXTS_OF_A_REQUEST))
    return Setting(value=1, why=because(Why.ONE_TEXT if alone else Why.ALL_TEXTS))
