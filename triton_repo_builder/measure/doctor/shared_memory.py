"""Why is it out of shared memory? Regions of the Python processes, and the tensors that cross them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from triton_repo_builder.base.dtypes import BY_CONFIG
from triton_repo_builder.measure.doctor import repairs
from triton_repo_builder.measure.doctor.cause import Cause, Repair
from triton_repo_builder.measure.doctor.facts import Facts, ModelFacts
from triton_repo_builder.measure.doctor.messages import SHM_GROWTH, SHM_START, Explained, explained

QUESTION = "shared-memory"
CHECKED: frozenset[str] = frozenset()
MIB = 1 << 20
DOCKER = 64 * MIB
"""Bytes of /dev/shm in a container without --shm-size."""
REGION = MIB
"""Bytes with which a Python process starts (shm-default-byte-size). Old releases took 64 MiB, and their
message says so."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """Shared memory of one Python model."""

    model: ModelFacts
    instances: int
    """Processes on one GPU or CPU."""
    devices: int
    """Copies of the group: one for each GPU if no kind is stated."""
    region: int
    batch: int
    """Bytes of the largest batch, in and out; 0 if a size varies."""

    @property
    def processes(self) -> int:
        return self.instances * self.devices

    @property
    def bytes(self) -> int:
        """At the busiest moment."""
        return self.processes * (self.region + self.batch)


def causes(facts: Facts) -> Iterator[Cause]:
    """Messages of the log, the server's own /dev/shm, and the arithmetic if this is asked."""
    said = [each for each in _reasons(facts) if each.code in (SHM_START, SHM_GROWTH)]
    start = max((each.number for each in said if each.code == SHM_START), default=0)
    # A region that the log names is what one process starts with.
    region = start or REGION
    needs = [need for model in facts.models if (need := _need(facts, model, region))]
    total = sum(need.bytes for need in needs)
    room = facts.shared_memory[0] if facts.shared_memory else DOCKER
    if not said and not (facts.is_asked(QUESTION) and total > room):
        return
    if not needs and not said:
        return
    model = _largest(said, needs)
    yield Cause(
        questions=(QUESTION, "ready") if any(each.code == SHM_START for each in said) else (QUESTION,),
        code=said[0].code if said else "shared-memory-small",
        model=model,
        where=next((need.model.at("instance_group") for need in needs if need.model.name == model), "log"),
        message=_message(needs, total, room) if needs else "the server ran out of shared memory",
        evidence=tuple(f"log line {each.line}: {each.text}" for each in said) + tuple(_rows(needs)),
        remedy=f"docker run --shm-size={_rounded(max(total, DOCKER))}m (Kubernetes: an emptyDir of medium "
        "Memory at /dev/shm); where that cannot be set, run fewer Python instances with smaller batches",
        repairs=tuple(_repairs(needs, room)),
    )


def unknown(facts: Facts) -> Iterator[str]:
    """Facts that are missing for this question."""
    if facts.shared_memory is None:
        yield (
            "the size of the server's /dev/shm: 64 MiB is assumed, Docker's default (df /dev/shm inside "
            "tells)"
        )
    varying = [model.name for model in facts.models if model.backend == "python" and _batch(model) == 0]
    if varying:
        yield f"the largest request of {', '.join(varying)}: a size varies, so that its bytes are not counted"


def _largest(said: list[Explained], needs: list[Need]) -> str:
    """The model that a message names, else the one that needs most."""
    named = next((each.model for each in said if each.model), "")
    return named or (max(needs, key=lambda need: need.bytes).model.name if needs else "")


def _reasons(facts: Facts) -> list[Explained]:
    reasons = [entry.reason for entry in facts.snapshot.index if entry.failed] if facts.snapshot else []
    return [each for text in (facts.log, *reasons) if text for each in explained(text)]


def _need(facts: Facts, model: ModelFacts, region: int) -> Need | None:
    if model.backend != "python":
        return None
    groups = model.config.instance_groups
    instances = sum(max(group.count, 1) for group in groups) or 1
    everywhere = not groups or any(group.kind in ("KIND_AUTO", "KIND_GPU") for group in groups)
    devices = max(facts.gpus or 1, 1) if everywhere else 1
    return Need(model=model, instances=instances, devices=devices, region=region, batch=_batch(model))


def _batch(model: ModelFacts) -> int:
    """Bytes of the largest batch, in and out; 0 if a size or a type leaves it open."""
    total = 0
    for tensor in (*model.config.inputs, *model.config.outputs):
        dtype = BY_CONFIG.get(tensor.data_type)
        if dtype is None or not dtype.size or min(tensor.dims, default=0) < 1:
            return 0
        total += dtype.size * prod(tensor.dims)
    return total * max(model.rows, 1)


def _message(needs: list[Need], total: int, room: int) -> str:
    processes = sum(need.processes for need in needs)
    return (
        f"{processes} Python processes need up to {total / MIB:.0f} MiB of shared memory, and /dev/shm has "
        f"{room / MIB:.0f} MiB"
    )


def _rows(needs: list[Need]) -> Iterator[str]:
    for need in needs:
        times = f"{need.instances} instances" + (f" x {need.devices} GPUs" if need.devices > 1 else "")
        batch = f" + {need.batch / MIB:.1f} MiB of a full batch" if need.batch else ""
        yield (
            f"{need.model.name}: {times} x ({need.region / MIB:.0f} MiB{batch}) = {need.bytes / MIB:.0f} MiB"
        )


def _repairs(needs: list[Need], room: int) -> Iterator[Repair]:
    """One process a model, on the CPU, then batches that fit into what is left."""
    left = room - sum(need.region for need in needs)
    for need in needs:
        edits, words = [], []
        if need.processes > 1 or need.devices > 1 or not need.model.config.instance_groups:
            edits.append(repairs.put("instance_group", repairs.instances(1)))
            words.append("one instance, on the CPU")
        share = left // len(needs)
        rows = max(need.model.rows, 1)
        if need.batch > share and share > 0 and rows > 1:
            fits = max(1, rows * share // need.batch)
            edits += [
                repairs.put("max_batch_size", f"max_batch_size: {fits}"),
                repairs.without_inner("dynamic_batching", "preferred_batch_size"),
            ]
            words.append(f"max_batch_size {rows} to {fits}")
        if edits:
            yield repairs.config(need.model.name, " and ".join(words), *edits)


def _rounded(size: int) -> int:
    """MiB for a flag: twice the need, in steps of 64."""
    return -(-2 * size // DOCKER) * 64
