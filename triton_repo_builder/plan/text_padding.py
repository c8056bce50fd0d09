"""How texts of different length become rows: what the graph can take, and the reasons that are told."""

from __future__ import annotations

from dataclasses import replace

from triton_repo_builder.dtypes import INT32, INT64
from triton_repo_builder.graph import ragged
from triton_repo_builder.plan import onnx_model, tensors
from triton_repo_builder.plan.defaults import (
    EQUAL_LENGTHS,
    PADDED_TOGETHER,
    Setting,
    Settings,
    told,
)
from triton_repo_builder.read.options import BuildOptions
from triton_repo_builder.read.source import Source
from triton_repo_builder.tasks import raw_outputs
from triton_repo_builder.tasks.task import TaskPlan

FIXED = {"the graph": "the graph takes exactly", "--query-length": "late interaction: each query has"}


def settle(chosen: Settings, options: BuildOptions, padded: str, why: str, fixed_by: str) -> Settings:
    """The padding that came to be and why, and what can be joined with it."""
    if padded == "ragged":
        chosen = chosen.of_any_length()
        reason = "the graph's front pads, to the longest row of a batch"
    elif padded.startswith("fixed"):
        given = fixed_by == "--padding"
        reason = told(options, "padding") if given else f"{FIXED[fixed_by]} {padded[6:]} tokens"
    else:
        if chosen.max_batch_size.value:
            own = ", so that it is never padded for another request" if padded == "rows" else ""
            why = f"no ragged front: {why}{own}"
        chosen = chosen.joining(PADDED_TOGETHER if padded == "batch" else EQUAL_LENGTHS)
        reason = told(options, "padding") if padded == options.padding else why
    return replace(chosen, padding=Setting(value=padded, reason=reason))


def obstacle(src: Source, task: TaskPlan, batching: bool, fixed: int) -> str:
    """Why the ragged front cannot be put before this graph; empty where it can."""
    signature = src.signature
    if not batching:
        return "the model cannot batch"
    if fixed:
        return f"every text has {fixed} tokens"
    if task.head is None and (name := raw_outputs.per_token(src)):
        return f"output '{name}' is as long as its row"
    inputs = onnx_model.model_inputs(signature, task)
    made = {*tensors.FRONT, *(spec.name for spec in inputs)} - {spec.name for spec in signature.inputs}
    if taken := next((spec.name for spec in signature.outputs if spec.name in made), ""):
        return f"output '{taken}' is called like a tensor of the front"
    for spec in inputs:
        if spec.dtype not in (INT32, INT64):
            return f"input '{spec.name}' is {spec.dtype.name}, not int32 or int64"
        if spec.shape is None or len(spec.shape) != 2:
            return f"input '{spec.name}' is not [batch, tokens]"
    return "" if signature.opset >= ragged.OLDEST_OPSET else f"opset {signature.opset} has no CumSum"


def fallback(why: str, batching: bool, fixed: int, together: bool) -> tuple[str, ...]:
    """What comes in place of the ragged front, and why. That a model cannot batch is said elsewhere."""
    if not batching:
        return ()
    if fixed:
        return (f"no ragged front, rows are padded by the tokenizer: {why}",)
    if together:
        return (
            "no ragged front, rows are padded to the longest of the tokenizer's batch (on a CPU measure "
            f"--padding rows, too): {why}",
        )
    return (f"no ragged front, rows are padded within a request, only equal lengths make a batch: {why}",)
