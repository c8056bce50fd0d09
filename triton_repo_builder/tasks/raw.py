"""``--raw-output``: text in, and the model's own outputs as they are."""

from __future__ import annotations

from triton_repo_builder.source import Source
from triton_repo_builder.tasks import tensor
from triton_repo_builder.tasks.base import TaskPlan

NAME = "raw-output"


def plan(source: Source) -> TaskPlan:
    """No head; every output of the graph, and in the golden cases what the original gives."""
    outputs = tensor.tensors(source.signature.outputs, batching=source.signature.batch.possible)
    names = [spec.name for spec in source.signature.outputs]
    return TaskPlan(
        name=NAME,
        head=None,
        outputs=outputs,
        reference=lambda answers, mask: {name: answers[name] for name in names},
    )


def per_token(source: Source) -> str:
    """An output that has an axis of tokens: its answers are as long as their row, so rows must not be joined
    with longer ones; empty where there is none."""
    for spec in source.signature.outputs:
        if -1 in spec.dims[1:]:
            return spec.name
    return ""
