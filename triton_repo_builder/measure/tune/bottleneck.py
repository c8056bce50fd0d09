"""Name of the bottleneck: the client, the CPU cores, a queue or a model."""

from __future__ import annotations

from triton_repo_builder.measure.bench.report.report import Level

BUSY = 0.9
"""Share of the machine's cores above which the cores are the bottleneck."""


def name(level: Level | None, cores: int) -> str:
    """``client``, ``cores``, ``queue of X`` or a model, with the number that says so; empty if unknown."""
    if level is None or level.latency is None:
        return ""
    if level.bottleneck and "ran late" not in level.bottleneck:
        return "client"
    inner = [model for model in level.models if model.model != level.endpoint] or list(level.models)
    used = (level.server_cores or 0.0) + (level.client.cores or 0.0)
    if used > BUSY * cores:
        return f"cores ({used:.1f} of {cores} used)"
    parts = [
        (time, text)
        for model in inner
        for time, text in (
            (model.queue_ms or 0.0, f"queue of {model.model}"),
            ((model.input_ms or 0) + (model.infer_ms or 0) + (model.output_ms or 0), model.model),
        )
    ]
    if not parts:
        return ""
    longest, text = max(parts)
    return f"{text} ({longest:.1f} ms)"
