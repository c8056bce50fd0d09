"""Numbers of the batcher and its queue, the cache and the instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from triton_repo_builder.check.context import ModelContext, c_string, relative
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.repository.pbtxt_document import Key

STRATEGY = "TRITON_BATCH_STRATEGY_PATH"
LONG_DELAY = 1_000_000
"""Microseconds. Every lone request waits this long: a second is a mistake in the unit."""


def check(context: ModelContext) -> Iterator[Finding]:
    """Errors of the core in batching, cache and instance_group, and settings without effect."""
    if context.max_batch_size < 0:
        message = f"'max_batch_size' must be non-negative value for {context.name}"
        yield context.finding("max-batch-size", message, "max_batch_size")
    if context.config.dynamic_batching is not None:
        yield from _preferred(context, "dynamic batching", "dynamic_batching", f" for {context.name}")
        yield from _delay(context)
        yield from _priorities(context, context.config.dynamic_batching)
    if "oldest" in context.config.raw.get("sequence_batching", {}):
        yield from _preferred(context, "sequence batching", "sequence_batching", "", "oldest")
    yield from _cache(context)
    yield from _strategy(context)
    if not context.ensemble:
        yield from _instances(context)


def _preferred(context: ModelContext, subject: str, field: str, whose: str, *inner: str) -> Iterator[Finding]:
    batching = context.config.raw[field]
    for name in inner:
        batching = batching[name]
    path = (field, *inner, "preferred_batch_size")
    sizes = batching.get("preferred_batch_size", [])
    adjective = "preferred size" if not inner else "preferred batch size"
    if any(size <= 0 for size in sizes):
        yield context.finding("preferred-size", f"{subject} {adjective} must be positive{whose}", *path)
    if any(size > max(context.max_batch_size, 0) for size in sizes):
        message = f"{subject} {adjective} must be <= max batch size for {context.name}"
        remedy = "" if context.max_batch_size else "set max_batch_size, or leave preferred_batch_size out"
        yield context.finding("preferred-size", message, *path, remedy=remedy)
    elif not inner and context.rows == 0:
        yield context.finding("batching-idle", "dynamic_batching does nothing without max_batch_size", field)


def _delay(context: ModelContext) -> Iterator[Finding]:
    batching = context.config.dynamic_batching or {}
    delay = batching.get("max_queue_delay_microseconds", 0)
    path = ("dynamic_batching", "max_queue_delay_microseconds")
    if delay > LONG_DELAY:
        message = f"a lone request waits {delay / 1e6:g} s for others to join it"
        yield context.finding("queue-delay-long", message, *path)
    if delay and 1 in batching.get("preferred_batch_size", []):
        message = "preferred_batch_size contains 1, so each request is sent at once and the delay never waits"
        yield context.finding("queue-delay-unused", message, *path)


def _priorities(context: ModelContext, batching: Mapping[str, Any]) -> Iterator[Finding]:
    levels = batching.get("priority_levels", 0)
    default = batching.get("default_priority_level", 0)
    policies = batching.get("priority_queue_policy", {})
    if levels and not 1 <= default <= levels:
        message = f"default priority level must be in range [1, {levels}] for {context.name}"
        yield context.finding("priority-range", message, "dynamic_batching", "priority_levels")
    if levels and any(not 1 <= int(key) <= levels for key in policies):
        message = f"priority queue policy must have priority level in range [1, {levels}] for {context.name}"
        yield context.finding("priority-range", message, "dynamic_batching", "priority_queue_policy")
    if not batching.get("preserve_ordering"):
        return
    if levels > 1:
        message = f"Only one priority level is allowed when 'preserve_ordering' is true for {context.name}"
        yield context.finding("preserve-ordering", message, "dynamic_batching", "preserve_ordering")
    for policy in (batching.get("default_queue_policy", {}), *policies.values()):
        if policy.get("timeout_action") == "DELAY" and policy.get("default_timeout_microseconds"):
            message = (
                "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for "
                f"{context.name}"
            )
            yield context.finding("preserve-ordering", message, "dynamic_batching", "preserve_ordering")


def _strategy(context: ModelContext) -> Iterator[Finding]:
    path = context.config.parameters.get(STRATEGY)
    if path is None or context.ensemble:
        return
    if context.config.has("sequence_batching"):
        message = f"{STRATEGY} cannot be specified with sequence batcher, using default batching strategy"
        yield context.finding(
            "batch-strategy", message, "parameters", Key(STRATEGY), remedy=f"drop {STRATEGY}"
        )
    elif message := relative(path):
        remedy = "write the absolute path that it has in the image"
        where = ("parameters", Key(STRATEGY))
        yield context.finding("batch-strategy", message, *where, remedy=remedy, severity="warning")
    elif not c_string(path) or not Path(c_string(path)).exists():
        message = f"Batching library path not found: {path}"
        severity = context.absent(path)
        yield context.finding("batch-strategy", message, "parameters", Key(STRATEGY), severity=severity)


def _cache(context: ModelContext) -> Iterator[Finding]:
    if not context.config.raw.get("response_cache", {}).get("enable"):
        return
    refusal = f"Response Cache does not currently support model {context.name} with"
    if context.config.has("sequence_batching"):
        message = f"{refusal} sequence batching scheduler. Please disable the response cache."
        yield context.finding("cache-unsupported", message, "response_cache")
    if context.config.decoupled:
        message = f"{refusal} 'decoupled' transaction policy. Please disable the response cache."
        yield context.finding("cache-unsupported", message, "response_cache")


def _instances(context: ModelContext) -> Iterator[Finding]:
    groups = context.messages("instance_group")
    for index, group in enumerate(groups):
        kind = group.get("kind", "KIND_AUTO")
        start = f"instance group {group.get('name') or f'{context.name}_{index}'} of model {context.name}"
        if isinstance(kind, int):
            message = f"{start} has unexpected kind KIND_AUTO"  # the server's word for any other number
            remedy = "write KIND_CPU, KIND_GPU or KIND_MODEL"
            yield context.finding("instance-gpus", message, "instance_group", index, "kind", remedy=remedy)
        if kind in ("KIND_CPU", "KIND_MODEL") and group.get("gpus"):
            message = f"{start} has kind {kind} but specifies one or more GPUs"
            yield context.finding("instance-gpus", message, "instance_group", index, "gpus")
        yield from _gpus(context, index, group, start)
        if group.get("profile") and context.backend != "tensorrt":
            message = (
                f"{start} and platform specifies profile field which is only supported for TensorRT models"
            )
            yield context.finding("instance-profile", message, "instance_group", index, "profile")
    if groups and all(group.get("passive") for group in groups):
        message = f"every instance of '{context.name}' is passive: the first request kills the server"
        yield context.finding("instance-passive", message, "instance_group", 0, "passive")
    if context.backend != "onnxruntime":
        return
    implicit = [i for i, group in enumerate(groups) if group.get("count", 0) < 1 and _may_be_cpu(group)]
    if implicit or not groups:
        message = "no instance count: on a CPU the server starts 2 instances, each with a copy of the weights"
        yield context.finding("instance-count", message, "instance_group", *implicit[:1])


def _gpus(context: ModelContext, index: int, group: Mapping[str, Any], start: str) -> Iterator[Finding]:
    """GPU numbers that no machine has, or not the server; KIND_AUTO falls back to the CPU."""
    kind, listed, count = group.get("kind", "KIND_AUTO"), group.get("gpus", []), context.image.gpus
    if kind not in ("KIND_GPU", "KIND_AUTO"):
        return
    if kind == "KIND_GPU" and count == 0 and not listed:
        yield context.finding(
            "instance-gpus",
            f"{start} has kind KIND_GPU but no GPUs are available",
            "instance_group",
            index,
            remedy="serve it on a machine with a GPU, or write kind: KIND_CPU if the model runs there",
        )
    absent = [gpu for gpu in listed if gpu < 0 or (count is not None and gpu >= count)]
    if not absent:
        return
    if kind == "KIND_GPU":
        message = f"{start} specifies invalid or unsupported gpu id {absent[0]}"
    else:  # The server takes KIND_AUTO for KIND_CPU if one of the GPUs is not there.
        message = f"{start} has kind KIND_CPU but specifies one or more GPUs"
    numbering = f"the server has {count}" if count is not None else "they count from 0"
    remedy = f"name GPUs that are there ({numbering}), or leave gpus out to use all"
    yield context.finding("instance-gpus", message, "instance_group", index, "gpus", remedy=remedy)


def _may_be_cpu(group: Mapping[str, Any]) -> bool:
    return group.get("kind", "KIND_AUTO") in ("KIND_AUTO", "KIND_CPU")
