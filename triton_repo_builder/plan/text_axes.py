"""The axes of a text model's inputs, [texts, tokens]: what the graph fixes, and whether a text fits."""

from __future__ import annotations

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.read.options import BuildOptions, fixed_padding, usage
from triton_repo_builder.read.source import Source
from triton_repo_builder.tasks.task import TaskPlan


def check(src: Source, task: TaskPlan) -> None:
    """``TrbError`` where no text fits all inputs: they have one row and one column for each of its tokens."""
    ids = src.signature.input("input_ids")
    for spec in src.signature.inputs:
        if ids is None or not len(ids.dims) == len(spec.dims) == 2:
            continue
        if spec.dims[0] > 1:
            raise TrbError(
                Code.NOT_BATCHABLE,
                f"input '{spec.name}' takes exactly {spec.dims[0]} texts at a time",
                where=str(src.path),
                remedy="export again with a dynamic first axis (torch: dynamic_axes), or use --task tensor",
            )
        if spec.dims[1] > 0 and spec.dims[1] != ids.dims[-1]:
            others = f"exactly {ids.dims[-1]}" if ids.dims[-1] > 0 else "any number"
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"input '{spec.name}' takes exactly {spec.dims[1]} tokens and 'input_ids' {others}, "
                "but they are of one text",
                where=str(src.path),
                remedy="export again with the same axes on every input (torch: dynamic_axes on each), "
                "or use --task tensor",
            )
    bound = set(task.head.bind.values()) if task.head else set()
    for spec in src.signature.outputs:
        if spec.name in bound and spec.dims and spec.dims[0] > 1:
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"output '{spec.name}' has exactly {spec.dims[0]} rows, whatever the number of texts",
                where=str(src.path),
                remedy="export again with a dynamic first axis (torch: dynamic_axes), or use --task tensor",
            )


def fixed(src: Source, options: BuildOptions) -> tuple[int, str]:
    """Tokens that every row has, 0 for any number, and why: the graph itself, or ``--padding fixed:N``."""
    ids = src.signature.input("input_ids")
    dims = ids.dims if ids else ()
    graph = dims[1] if len(dims) == 2 and dims[1] > 0 else 0
    asked = fixed_padding(options.padding)
    if graph and asked and graph != asked:
        raise usage("padding", f"the graph takes exactly {graph} tokens, not {asked}", f"use fixed:{graph}")
    return (graph, "the graph") if graph else (asked, "--padding")
