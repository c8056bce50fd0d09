"""``--raw-output``: text in, and the model's own outputs as they are."""

from __future__ import annotations

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.tasks import tensor
from triton_repo_builder.endpoint.tasks.task import Kind, TaskPlan
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.source import Source

NAME = "raw-output"
KIND = Kind.TEXT
OPTIONS: tuple[str, ...] = ()
ARCHITECTURES: tuple[str, ...] = ()


def fits(source: Source) -> bool:
    """Never by itself: ``--raw-output`` asks for it."""
    return False


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """No head; every output of the graph, and in the golden cases the original's outputs.

    ``TrbError`` UNSUPPORTED_MODEL if one is called like the endpoint's input.
    """
    outputs = tensor.tensors(source.signature.outputs, batching=source.signature.batch.possible)
    names = [spec.name for spec in source.signature.outputs]
    plan = TaskPlan(
        name=NAME,
        head=None,
        outputs=outputs,
        reference=lambda answers, mask: {name: answers[name] for name in names},
    )
    if duplicate := next((text.name for text in plan.texts if text.name in names), ""):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"--raw-output: the model's output '{duplicate}' has the name of the endpoint's input",
            where=str(source.path),
            remedy="rename the output and export again, or leave out --raw-output",
        )
    return plan


def per_token(source: Source) -> str:
    """An output that has an axis of tokens: its answers are as long as their row, so rows must not be joined
    with longer ones; empty if there is none."""
    for spec in source.signature.outputs:
        if -1 in spec.dims[1:]:
            return spec.name
    return ""
