"""Signature, task and options → ``RepositoryPlan``. Every rule of what is written into which file is here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from triton_repo_builder.base.dtypes import INT32, INT64, DType
from triton_repo_builder.endpoint.plan import accelerator
from triton_repo_builder.endpoint.plan.defaults import ServingSettings
from triton_repo_builder.endpoint.plan.endpoint import PlanRequest
from triton_repo_builder.endpoint.plan.model import (
    BatchInput,
    EnsembleStep,
    InstanceGroup,
    ModelPlan,
    RepositoryPlan,
    TensorPlan,
    WarmupInput,
    about_model,
    between,
)
from triton_repo_builder.endpoint.tasks import tensor
from triton_repo_builder.endpoint.tasks.task import Postprocess, TaskPlan, TextInput
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.signature import ModelSignature, TensorSpec
from triton_repo_builder.repository import tensor_names

CPU = "KIND_CPU"
IDS_INSTEAD = "input_ids"
"""Tensor that post-processing reads as ``trb_tokens`` if the tokenizer pads the rows."""
TEXTS_JOIN = "texts of any length join: TEXT has a fixed shape, so Triton never splits these batches"
ANSWERS_JOIN = "answers of any length join: what has no fixed shape is marked as ragged"


@dataclass(frozen=True, kw_only=True)
class TokenSettings:
    """How tokens get from the tokenizer to the model."""

    max_length: int | None
    pad_id: int
    pad_to: int
    """Every row has this many tokens; 0: no padding beyond need."""
    ragged: bool
    """Ids alone, as one ragged tensor; the graph's front derives the rest."""
    types: bool
    """With ``ragged``: token types travel as a second ragged tensor."""
    row_length: int = 0
    """With ``ragged``: tokens of every row of the model, pad ids at its end among them; 0: any number."""
    pad_to_batch_longest: bool = False
    """All texts of the tokenizer's batch get the length of the longest."""
    truncation_side: str = "right"
    splits_special: bool = False
    """Special tokens written in a text are text like any other."""
    positions_from_pad: bool = False
    """Position ids, if the model takes any, count from pad id + 1 over what is not padding."""
    stride: int = 0
    """Tokens that the chunks of a long second text share; 0: it is cut."""
    max_text_bytes: int = 0
    """Largest text; 0: the tokenizer model's default."""
    most_tokens: int = 0
    """Largest text that has memory, if ``max_length`` lets through longer ones; else 0."""
    vocabulary: int = 0
    """Rows of the embedding, if the tokenizer has tokens beyond; else 0."""
    cache: int = 0
    """Texts whose tokens are kept; 0: none."""
    unknown_id: int = -1
    """Token for text that is not in the vocabulary; -1: none."""


@dataclass(frozen=True, kw_only=True)
class FirstRequests:
    """Warm-up of the model and of the tokenizer."""

    model: tuple[WarmupInput, ...] = ()
    tokenizer: tuple[WarmupInput, ...] = ()


def text(
    request: PlanRequest,
    tokens: TokenSettings,
    settings: ServingSettings,
    warmup: FirstRequests,
    *,
    batching: bool,
) -> RepositoryPlan:
    """Texts → answer: an ensemble of a tokenizer, the model with front and head, and post-processing."""
    name, signature, task = request.name, request.source.signature, request.task
    outputs = tuple(whole(plan, batching, rows(signature, task)) for plan in task.outputs)
    if task.head is None:
        outputs = tensor.tensors(signature.outputs, batching=batching)
    names = [tensor_name for tensor_name, _ in encoded(signature, task, tokens)]
    tokenizer = replace(_tokenizer(request, tokens, settings, batching=batching), warmup=warmup.tokenizer)
    model = ModelPlan(
        name=f"{name}_model",
        about=about_model(front=tokens.ragged, head=task.head is not None),
        max_batch_size=tokenizer.max_batch_size,
        input=tuple(
            replace(plan, allow_ragged_batch=tokens.ragged) for plan in tokenizer.output if plan.name in names
        ),
        output=outputs,
        batch_input=(_LENGTHS,) if tokens.ragged else (),
        warmup=warmup.model,
    )
    model = onnx_model(model, request.options, settings, batching=batching)
    public = (*(text.name for text in task.texts), *(plan.name for plan in outputs))
    inner = {plan.name: between(plan.name, public) for plan in tokenizer.output}
    steps: tuple[EnsembleStep, ...] = (
        EnsembleStep(
            model_name=tokenizer.name,
            input_map=tuple((text.name, text.name) for text in task.texts),
            output_map=tuple(inner.items()),
        ),
        EnsembleStep(
            model_name=model.name,
            input_map=tuple((tensor_name, inner[tensor_name]) for tensor_name in names),
            output_map=tuple((plan.name, plan.name) for plan in outputs),
        ),
    )
    models: tuple[ModelPlan, ...] = (tokenizer, model)
    if task.post:
        tensor_plans = {plan.name: plan for plan in (*tokenizer.input, *tokenizer.output, *model.output)}
        about = "the answer in terms of the text"
        post = postprocess(f"{name}_postprocess", about, task.post, tensor_plans, tokenizer)
        outputs, models = post.output, (tokenizer, post, model)
        post_step = EnsembleStep(
            model_name=post.name,
            input_map=tuple((p.name, p.name if p.name in tensor_plans else IDS_INSTEAD) for p in post.input),
            output_map=tuple((plan.name, plan.name) for plan in post.output),
        )
        steps = (*steps, post_step)
    inputs = tuple(replace(text.plan, optional=text.optional) for text in task.texts)
    ensemble = ModelPlan(
        name=name,
        about=f"Endpoint ({task.name}): {', '.join(_offered(text) for text in task.texts)} in, "
        f"{', '.join(plan.name for plan in outputs)} out.",
        max_batch_size=tokenizer.max_batch_size,
        input=inputs,
        output=tuple(TensorPlan(name=p.name, data_type=p.data_type, dims=p.dims) for p in outputs),
        response_cache=request.options.response_cache,
        step=steps,
    )
    return RepositoryPlan(
        task=task.name, models=(ensemble, *models), version=request.options.version, notes=task.notes
    )


def _offered(text: TextInput) -> str:
    return f"optional {text.name}" if text.optional else text.name


def postprocess(
    name: str, about: str, post: Postprocess, tensor_plans: Mapping[str, TensorPlan], first: ModelPlan
) -> ModelPlan:
    """The Python model at the end: its inputs may have any length, so all of them are ragged.

    It has the batch size and instances of the ``first`` model.
    """
    sources = [(source, tensor_plans.get(source) or tensor_plans[IDS_INSTEAD]) for source in post.inputs]
    inputs = tuple(
        replace(plan, name=tensor_name, allow_ragged_batch=-1 in plan.dims, optional=False)
        for tensor_name, plan in sources
    )
    return ModelPlan(
        name=name,
        about=f"Post-processing: {about}.",
        backend="python",
        max_batch_size=first.max_batch_size,
        input=inputs,
        output=tuple(whole(plan, first.max_batch_size > 0, -1) for plan in post.outputs),
        dynamic_batching=first.dynamic_batching,
        instance_group=first.instance_group,
        parameters=post.parameters,
        reasons=(("batching", ANSWERS_JOIN if first.dynamic_batching else dict(first.reasons)["batching"]),),
    )


_LENGTHS = BatchInput(
    kind="BATCH_ITEM_SHAPE",  # one length per row; BATCH_ELEMENT_COUNT would count per request
    target_name=tensor_names.LENGTHS,
    data_type="TYPE_FP32",
    source_input=tensor_names.TOKENS,
)


def _tokenizer(
    request: PlanRequest, tokens: TokenSettings, settings: ServingSettings, *, batching: bool
) -> ModelPlan:
    signature, task = request.source.signature, request.task
    assert settings.preprocess_instances is not None
    size = int(settings.max_batch_size.value) if batching else 0
    dynamic = settings.joining(size)
    length = tokens.pad_to or -1
    dims = (length,) if batching else (1, length)
    encoding = task.encoding
    columns = 5 if encoding.offsets == "words" else 3
    offsets = TensorPlan(name=tensor_names.OFFSETS, data_type="TYPE_INT32", dims=(*dims, columns))
    return ModelPlan(
        name=f"{request.name}_tokenizer",
        about="Tokenizer: texts to token ids, one call for all requests of a batch."
        if dynamic
        else "Tokenizer: texts to token ids.",
        backend="python",
        max_batch_size=size,
        input=tuple(replace(text.plan, allow_ragged_batch=text.several and batching) for text in task.texts),
        output=(
            *(
                TensorPlan(name=tensor_name, data_type=dtype.config, dims=dims)
                for tensor_name, dtype in encoded(signature, task, tokens)
            ),
            *((offsets,) if encoding.offsets else ()),
        ),
        dynamic_batching=dynamic,
        instance_group=InstanceGroup(count=int(settings.preprocess_instances.value), kind=CPU),
        parameters=(
            ("max_length", str(tokens.max_length or 0)),
            ("pad_id", str(tokens.pad_id)),
            ("pad_to", str(tokens.pad_to)),
            *((("row_length", str(tokens.row_length)),) if tokens.row_length else ()),
            *((("pad_together", "true"),) if tokens.pad_to_batch_longest else ()),
            *((("truncation_side", "left"),) if tokens.truncation_side == "left" else ()),
            *((("split_special_tokens", "true"),) if tokens.splits_special else ()),
            *((("positions_from_pad", "true"),) if _counted_by_tokenizer(signature, tokens) else ()),
            *((("truncation", encoding.truncation),) if encoding.truncation != "longest_first" else ()),
            *((("stride", str(tokens.stride)),) if tokens.stride else ()),
            *((("max_text_bytes", str(tokens.max_text_bytes)),) if tokens.max_text_bytes else ()),
            *((("spans", encoding.offsets),) if encoding.offsets else ()),
            *((("most_tokens", str(tokens.most_tokens)),) if tokens.most_tokens else ()),
            *((("vocabulary", str(tokens.vocabulary)),) if tokens.vocabulary else ()),
            *((("cache", str(tokens.cache)),) if tokens.cache else ()),
            *((("unknown_id", str(tokens.unknown_id)),) if tokens.unknown_id >= 0 else ()),
            *encoding.parameters,
        ),
        reasons=(
            ("instances", settings.preprocess_instances.reason),
            ("batching", TEXTS_JOIN if settings.joins else settings.batching.reason),
        ),
    )


def _counted_by_tokenizer(signature: ModelSignature, tokens: TokenSettings) -> bool:
    """Whether the tokenizer model must know how positions are counted: not if the front counts them."""
    takes_positions = signature.input("position_ids") is not None
    return takes_positions and tokens.positions_from_pad and not tokens.ragged


def encoded(
    signature: ModelSignature, task: TaskPlan, tokens: TokenSettings
) -> tuple[tuple[str, DType], ...]:
    """Names and types of the tokenizer's outputs for the model."""
    if tokens.ragged:
        return ((tensor_names.TOKENS, INT32), *(((tensor_names.TYPES, INT32),) if tokens.types else ()))
    return tuple((spec.name, spec.dtype) for spec in model_inputs(signature, task))


def model_inputs(signature: ModelSignature, task: TaskPlan) -> tuple[TensorSpec, ...]:
    """The model's inputs, and the mask that a pooling head needs if the model takes none."""
    bound = set(task.head.bind.values()) if task.head else set()
    if "attention_mask" in bound and signature.input("attention_mask") is None:
        mask = TensorSpec(name="attention_mask", dtype=INT64, shape=("B", "T"))
        return (*signature.inputs, mask)
    return signature.inputs


def whole(plan: TensorPlan, batching: bool, size: int) -> TensorPlan:
    """Without batching the batch axis is an axis like any other and must be written."""
    if batching:
        return plan
    return TensorPlan(
        name=plan.name, data_type=plan.data_type, dims=(size, *plan.dims), label_filename=plan.label_filename
    )


def rows(signature: ModelSignature, task: TaskPlan) -> int:
    """The first size of the head's outputs: fixed if all inputs of the head are fixed, else -1."""
    names = task.head.bind.values() if task.head else ()
    specs = [signature.output(name) or signature.input(name) for name in names]
    sizes = {spec.dims[0] if spec and spec.dims else -1 for spec in specs}
    return max(sizes) if sizes and -1 not in sizes else -1


def onnx_model(
    model: ModelPlan, options: BuildOptions, settings: ServingSettings, *, batching: bool
) -> ModelPlan:
    """The model, of which the tensors are planned, for the onnxruntime backend."""
    dynamic = None
    if batching and settings.joins:
        dynamic = replace(
            settings.queue,
            preferred_batch_size=options.preferred_batch_size,
            max_queue_delay_microseconds=options.max_queue_delay,
        )
    return replace(
        model,
        backend="onnxruntime",
        dynamic_batching=dynamic,
        instance_group=InstanceGroup(count=int(settings.instances.value), kind=settings.kind),
        parameters=(("intra_op_thread_count", str(settings.threads.value)),),
        reasons=(
            ("max_batch_size", settings.max_batch_size.reason),
            ("instances", settings.instances.reason),
            ("batching", settings.batching.reason),
            ("intra_op_thread_count", settings.threads.reason),
        ),
        accelerator=accelerator.of(options, settings.kind, model.name, model.input, model.max_batch_size),
    )
