"""How texts of different length become a batch: the axes of the graph decide the padding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from triton_repo_builder.base.dtypes import INT32, INT64, STRING
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.plan import accelerator, defaults, onnx_model
from triton_repo_builder.endpoint.plan.defaults import Setting
from triton_repo_builder.endpoint.plan.endpoint import PlanRequest
from triton_repo_builder.endpoint.plan.reasons import Reason, Why, because, set_by
from triton_repo_builder.endpoint.tasks import raw_outputs
from triton_repo_builder.endpoint.tasks.task import TaskPlan
from triton_repo_builder.model.graph import ragged
from triton_repo_builder.model.graph.packing import rewrite as packing
from triton_repo_builder.model.graph.parts import Rows
from triton_repo_builder.model.read.options import BuildOptions, fixed_padding, usage
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository import tensor_names


class Mode(Enum):
    """How texts are padded; the value is that of ``--padding``."""

    RAGGED = "ragged"
    """Pad in the graph's front, to the longest text of the model's batch."""
    BATCH = "batch"
    """Pad in the tokenizer, to the longest text of its own batch."""
    REQUEST = "rows"
    """Pad in the tokenizer, to the longest text of the request."""
    FIXED = "fixed"
    """Pad in the tokenizer, to a number of tokens."""


class FixedBy(Enum):
    """Source of the fixed number of tokens of every text; the value is the name that users see."""

    GRAPH = "the graph"
    PADDING = "--padding"
    QUERY_LENGTH = "--query-length"
    MODEL = "the model"


@dataclass(frozen=True, kw_only=True)
class FixedLength:
    """Tokens that every text has; 0: any number."""

    tokens: int
    by: FixedBy


@dataclass(frozen=True, kw_only=True)
class PaddingPlan:
    """The padding of an endpoint."""

    mode: Mode
    fixed: FixedLength
    obstacle: str = ""
    """Why the graph does not pad; empty for RAGGED."""
    rows: Rows = Rows.PADDED
    """Which rows the graph sees together, if it pads."""
    rows_why: str = ""
    """Why the graph does not run without padding; empty if it does."""

    @property
    def name(self) -> str:
        """The value of ``--padding``."""
        return f"fixed:{self.fixed.tokens}" if self.mode is Mode.FIXED else self.mode.value


def check_axes(source: Source, task: TaskPlan) -> None:
    """``TrbError`` if no text fits all inputs: they have one row and one column for each of its tokens."""
    ids = source.signature.input("input_ids")
    for spec in source.signature.inputs:
        if ids is None or not len(ids.dims) == len(spec.dims) == 2:
            continue
        if spec.dims[0] > 1:
            raise TrbError(
                Code.NOT_BATCHABLE,
                f"input '{spec.name}' takes exactly {spec.dims[0]} texts at a time",
                where=str(source.path),
                remedy="export again with a dynamic first axis (torch: dynamic_axes), or use --task tensor",
            )
        if spec.dims[1] > 0 and spec.dims[1] != ids.dims[-1]:
            others = f"exactly {ids.dims[-1]}" if ids.dims[-1] > 0 else "any number"
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"input '{spec.name}' takes exactly {spec.dims[1]} tokens and 'input_ids' {others}, "
                "but they are of one text",
                where=str(source.path),
                remedy="export again with the same axes on every input (torch: dynamic_axes on each), "
                "or use --task tensor",
            )
    bound = set(task.head.bind.values()) if task.head else set()
    for spec in source.signature.outputs:
        if spec.name in bound and spec.dims and spec.dims[0] > 1:
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"output '{spec.name}' has exactly {spec.dims[0]} rows, whatever the number of texts",
                where=str(source.path),
                remedy="export again with a dynamic first axis (torch: dynamic_axes), or use --task tensor",
            )


def fixed_length(source: Source, task: TaskPlan, options: BuildOptions) -> FixedLength:
    """The length fixed by the graph itself, ``--padding fixed:N`` or the task."""
    ids = source.signature.input("input_ids")
    dims = ids.dims if ids else ()
    graph = dims[1] if len(dims) == 2 and dims[1] > 0 else 0
    query = task.rules.pad_to if task.rules else 0
    trained = _trained_length(source)
    tokens = query or trained or fixed_padding(options.padding)
    if graph and query and graph != query:
        raise usage(
            "query_length",
            f"the graph takes exactly {graph} tokens, and a query has {query}",
            f"use {graph}, or export again with a dynamic second axis",
        )
    if graph and tokens and graph != tokens:
        raise usage("padding", f"the graph takes exactly {graph} tokens, not {tokens}", f"use fixed:{graph}")
    if graph:
        return FixedLength(tokens=graph, by=FixedBy.GRAPH)
    if trained:
        if fixed_padding(options.padding) not in (0, trained):
            raise usage(
                "padding",
                f"the model was trained on exactly {trained} tokens",
                f"leave it out, or use fixed:{trained}",
            )
        return FixedLength(tokens=tokens, by=FixedBy.MODEL)
    return FixedLength(tokens=tokens, by=FixedBy.QUERY_LENGTH if query else FixedBy.PADDING)


def _trained_length(source: Source) -> int:
    """The length of every text that a model was trained with, padding included; 0: it takes any.

    SigLIP's text tower takes no mask and reads its vector from the last of 64 tokens, padding or not
    (transformers, model_doc/siglip: "make sure to pass padding='max_length'").
    """
    if not str(source.config.get("model_type", "")).startswith("siglip"):
        return 0
    section = source.config.get("text_config")
    stated = (section if isinstance(section, dict) else source.config).get("max_position_embeddings", 64)
    return stated if isinstance(stated, int) and stated > 0 else 0


def decide(request: PlanRequest, fixed: FixedLength, interaction: str) -> PaddingPlan:
    """Raises ``TrbError``. ``interaction``: how rows change each other's answers; empty if they do not."""
    source, task, options = request.source, request.task, request.options
    batching = source.signature.batch.possible
    check_front(source, task, options, fixed, batching=batching)
    option = _requested(task, options)
    obstacle = _obstacle(source, task, option, fixed, batching=batching)
    if not obstacle:
        rows, why = _rows(request, interaction)
        return PaddingPlan(mode=Mode.RAGGED, fixed=fixed, rows=rows, rows_why=why)
    if fixed.tokens:
        return PaddingPlan(mode=Mode.FIXED, fixed=fixed, obstacle=obstacle)
    together = batching and option != Mode.REQUEST.value
    if together and task.head is None and (output := raw_outputs.per_token(source)):
        # A client would get an answer as long as another client's text.
        if option == Mode.BATCH.value:
            raise usage("padding", f"output '{output}' is as long as its row", "use --padding rows")
        together = False
    return PaddingPlan(mode=Mode.BATCH if together else Mode.REQUEST, fixed=fixed, obstacle=obstacle)


def check_front(
    source: Source, task: TaskPlan, options: BuildOptions, fixed: FixedLength, *, batching: bool
) -> None:
    """``TrbError`` if the task needs the ragged front and the graph cannot take it."""
    option = _requested(task, options)
    if not task.encoding.chunks and (not task.post or batching):
        return
    if _obstacle(source, task, option, fixed, batching=batching):
        tokens = fixed.tokens if fixed.by is FixedBy.GRAPH else 0
        _refuse(source, task, front_obstacle(source, task, batching, tokens), option)


def _obstacle(source: Source, task: TaskPlan, option: str, fixed: FixedLength, *, batching: bool) -> str:
    """Why rows are not padded in the graph; empty if they are."""
    if option != Mode.RAGGED.value:
        return f"--padding {option} was asked for"
    # Of an item of several rows the tokenizer fills up each, and the front keeps them as they are.
    filled = bool(task.encoding.chunks) and fixed.by is FixedBy.MODEL
    return front_obstacle(source, task, batching, 0 if filled else fixed.tokens)


def alone(padding: PaddingPlan) -> PaddingPlan:
    """The padding for a model that takes one text at a time."""
    return replace(padding, mode=Mode.REQUEST) if padding.mode is Mode.BATCH else padding


def _rows(request: PlanRequest, interaction: str) -> tuple[Rows, str]:
    """Which rows the graph sees together, and why it does not run without padding."""
    if one_run := request.task.encoding.one_run:
        return Rows.PADDED, one_run
    if interaction:
        return Rows.SINGLE, interaction
    if defaults.on_gpu(request.options, request.machine):
        return Rows.PADDED, "a GPU gains more by one large run than it loses by padding"
    if request.options.accelerator != accelerator.NONE:
        return Rows.GROUPS, "another engine takes the graph"
    why = packing.obstacle(request.source.skeleton)
    return (Rows.GROUPS, why) if why else (Rows.PACKED, "")


def _requested(task: TaskPlan, options: BuildOptions) -> str:
    """The option, or the task's value in its place."""
    return f"fixed:{task.rules.pad_to}" if task.rules and task.rules.pad_to else options.padding


def front_obstacle(source: Source, task: TaskPlan, batching: bool, fixed: int) -> str:
    """Why the ragged front cannot be put before this graph; empty if it can."""
    signature = source.signature
    if not batching:
        return signature.batch.reason or "the model cannot batch"
    if fixed:
        return f"every text has {fixed} tokens"
    if task.head is None and (name := raw_outputs.per_token(source)):
        return f"output '{name}' is as long as its row"
    strings = (spec.name for spec in signature.outputs if spec.dtype == STRING)
    if task.head is None and (name := next(strings, "")):
        return f"output '{name}' is of strings, which a loop over rows cannot carry"
    inputs = onnx_model.model_inputs(signature, task)
    added = {*tensor_names.FRONT, *(spec.name for spec in inputs)} - {spec.name for spec in signature.inputs}
    if duplicate := next((spec.name for spec in signature.outputs if spec.name in added), ""):
        return f"output '{duplicate}' is called like a tensor of the front"
    for spec in inputs:
        if spec.dtype not in (INT32, INT64):
            return f"input '{spec.name}' is {spec.dtype.name}, not int32 or int64"
        if spec.shape is None or len(spec.shape) != 2:
            return f"input '{spec.name}' is not [batch, tokens]"
    return "" if signature.opset >= ragged.OLDEST_OPSET else f"opset {signature.opset} has no CumSum"


def _refuse(source: Source, task: TaskPlan, obstacle: str, option: str) -> None:
    """For the graph's own obstacle if it has one; else the option alone is in the way."""
    if not obstacle:
        raise usage(
            "padding", f"{option}: the task {task.name} needs rows of any length in a batch", "leave it out"
        )
    fixed = any(dim > 0 for spec in source.signature.inputs for dim in spec.dims)
    # With an image beside the texts there are no raw outputs.
    remedy = "use --task tensor" if task.encoding.one_run else "use --raw-output or --task tensor"
    if source.signature.batch.reason:
        remedy = f"export again with a dynamic first axis on every input (optimum's default), or {remedy}"
    elif fixed:
        remedy = (
            f"export again with dynamic axes [batch, tokens] on every input (optimum's default), or {remedy}"
        )
    elif source.signature.opset < ragged.OLDEST_OPSET:
        remedy = f"export again with opset {ragged.OLDEST_OPSET} or newer, or {remedy}"
    raise TrbError(
        Code.NOT_BATCHABLE,
        f"the task {task.name} needs a model that takes rows of any length in a batch: {obstacle}",
        where=str(source.path),
        remedy=remedy,
    )


def setting(padding: PaddingPlan, options: BuildOptions, cannot_batch: str) -> Setting:
    """The padding with its reason."""
    return Setting(value=padding.name, why=_why(padding, options, cannot_batch))


def _why(padding: PaddingPlan, options: BuildOptions, cannot_batch: str) -> Reason:
    if padding.mode is Mode.RAGGED:
        if padding.rows is Rows.SINGLE:
            return because(Why.FRONT_SINGLE, reason=padding.rows_why)
        if padding.rows is Rows.PADDED:
            return because(Why.FRONT_PADS, reason=padding.rows_why)
        if padding.rows is Rows.GROUPS:
            return because(Why.FRONT_GROUPS, reason=padding.rows_why)
        return because(Why.FRONT_PACKED)
    if padding.mode is Mode.FIXED:
        if padding.fixed.by is FixedBy.PADDING:
            return set_by(options, "padding")
        kinds = {FixedBy.GRAPH: Why.GRAPH_FIXED, FixedBy.MODEL: Why.MODEL_FIXED}
        kind = kinds.get(padding.fixed.by, Why.QUERY_FIXED)
        return because(kind, tokens=padding.fixed.tokens)
    if padding.name == options.padding:
        return set_by(options, "padding")
    if cannot_batch:
        return because(Why.ONE_AT_A_TIME, obstacle=cannot_batch)
    kind = Why.NO_FRONT_ALONE if padding.mode is Mode.REQUEST else Why.NO_FRONT
    return because(kind, obstacle=padding.obstacle)


JOINS = {Mode.BATCH: because(Why.PADDED_TOGETHER), Mode.REQUEST: because(Why.EQUAL_LENGTHS)}
"""Which requests join, if not all of them."""


def fallback(padding: PaddingPlan, task: TaskPlan, options: BuildOptions) -> tuple[str, ...]:
    """A note on the replacement of the ragged front, if the user did not choose it."""
    if _requested(task, options) != Mode.RAGGED.value or padding.mode is Mode.RAGGED:
        return ()
    instead = {
        Mode.FIXED: "rows are padded by the tokenizer",
        Mode.BATCH: "rows are padded to the longest of the tokenizer's batch "
        "(on a CPU measure --padding rows, too)",
        Mode.REQUEST: "rows are padded within a request, only equal lengths make a batch",
    }
    return (f"no ragged front, {instead[padding.mode]}: {padding.obstacle}",)
