"""Refuses build options out of range or in conflict, from any source."""

from __future__ import annotations

from triton_repo_builder.base.option_values import InvalidValue
from triton_repo_builder.model.read.options import DEFAULT_MAX_BATCH_SIZE, OPTIONS, BuildOptions, usage

OF_QUEUES = ("preferred_batch_size", "max_queue_delay", "max_queue_size", "queue_timeout", "priority_levels")
"""Options of the queue in which requests wait to be joined."""


def check(options: BuildOptions) -> BuildOptions:
    """Return the options unchanged. Raises ``TrbError`` USAGE for values out of range or in conflict."""
    for name, declared in OPTIONS.items():
        value = getattr(options, name)
        try:
            if value is not None:
                declared.value.check(value)
        except InvalidValue as error:
            raise usage(name, error.message, error.remedy) from None
    _check_batching(options)
    if options.reference is not None and options.metrics == "off":
        raise usage("reference", "has no effect with --metrics off", "leave one of them out")
    return options


def _check_batching(options: BuildOptions) -> None:
    waiting = next((name for name in OF_QUEUES if getattr(options, name)), "")
    if options.batching == "off" and waiting:
        raise usage(waiting, "has no effect with --batching off", "leave it out, or use --batching on")
    if options.batching == "on" and options.max_batch_size == 1:
        raise usage(
            "batching",
            "on has nothing to batch with --max-batch-size 1",
            "leave --batching out, or raise --max-batch-size",
        )
    largest = options.max_batch_size or DEFAULT_MAX_BATCH_SIZE
    for size in options.preferred_batch_size:
        if size > largest:
            raise usage(
                "preferred_batch_size",
                f"{size} is larger than the maximum batch size {largest}",
                f"lower it, or raise --max-batch-size to {size}",
            )
    if options.max_batch_size == 1 and waiting:
        raise usage(
            waiting, "has no effect with --max-batch-size 1", "leave it out, or raise --max-batch-size"
        )
