"""Text endpoints: TEXT through a tokenizer model to the graph, and through post-processing if needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from triton_repo_builder.base import files, resources
from triton_repo_builder.base.files import File
from triton_repo_builder.endpoint.golden import original, short_rows, transformers_check
from triton_repo_builder.endpoint.golden import text as golden
from triton_repo_builder.endpoint.golden.original import OriginalModel, Recording
from triton_repo_builder.endpoint.plan import (
    defaults,
    onnx_model,
    text_limits,
    text_memory,
    text_padding,
    text_reference,
)
from triton_repo_builder.endpoint.plan.defaults import ModelFacts
from triton_repo_builder.endpoint.plan.endpoint import (
    PLACEHOLDER,
    EndpointPlan,
    PlanRequest,
    Vendored,
    not_batched,
    postprocess_files,
    refuse_batching_options,
)
from triton_repo_builder.endpoint.plan.model import WarmupInput
from triton_repo_builder.endpoint.plan.onnx_model import TokenSettings
from triton_repo_builder.endpoint.plan.text_memory import RunMemory
from triton_repo_builder.endpoint.plan.text_padding import FixedBy, FixedLength, Mode
from triton_repo_builder.endpoint.tasks import question_answering
from triton_repo_builder.endpoint.tasks.support import examples, prompts
from triton_repo_builder.endpoint.tasks.task import Kind, TaskPlan
from triton_repo_builder.model.graph import ragged
from triton_repo_builder.model.graph.parts import Front, Rows
from triton_repo_builder.model.read import tokenizer, tokenizer_template
from triton_repo_builder.model.read.options import usage
from triton_repo_builder.model.read.tokenizer import TokenizerSpec
from triton_repo_builder.repository import tensor_names
from triton_repo_builder.repository.cases import CaseFile
from triton_repo_builder.repository.reference import Reference

NO_CASES = (
    "no golden cases: the examples are too long for the model, or float noise changes their answers; "
    "trb smoke cannot prove them"
)
UNMASKED = "the model takes no attention_mask, so its answer to a text may change with padding"
UNPROVEN = (
    "without golden cases nothing has shown that a text's answer is the same beside others and padded; a "
    "build with them lets rows run together"
)
"""A reason to run row by row; if the rows are padded before the graph, only a note."""
PROBES = ("Hello", "The first request must not be slower than the others.")


@dataclass(frozen=True, kw_only=True)
class TextEncoding:
    """How texts become tokens."""

    tokenizer: TokenizerSpec
    """The tokenizer as it is served."""
    fixed: FixedLength
    max_length: int | None
    stride: int
    """Tokens that chunks of a long second text share; 0: it is cut."""
    notes: tuple[str, ...]


def prepare(request: PlanRequest) -> TextEncoding:
    """The tokenizer with the task's changes and limits. Raises ``TrbError``."""
    source, task, options = request.source, request.task, request.options
    text_limits.check_vocabulary(source, source.tokenizer_spec)
    text_limits.check_positions(source, source.tokenizer_spec)
    text_limits.check_types(source, task)
    spec = source.tokenizer_spec
    if task.rules is not None:
        spec = tokenizer_template.apply(spec, task.rules)
    text_padding.check_axes(source, task)
    fixed = text_padding.fixed_length(source, task, options)
    # Before the original is run, which cannot take several rows, either.
    text_padding.check_front(source, task, options, fixed, batching=source.signature.batch.possible)
    positions = tokenizer.table_of_positions(source.config)
    limit, notes = text_limits.max_length(spec, options, fixed, task, positions)
    prompts.check_room(source, task, limit)
    stride = question_answering.stride(limit) if task.encoding.strided and limit else 0
    _, unknown = text_limits.unknown_tokens(source, spec)
    notes = (*spec.notes, *notes, *filter(None, (unknown,)))
    return TextEncoding(tokenizer=spec, fixed=fixed, max_length=limit, stride=stride, notes=notes)


def record(request: PlanRequest, prepared: TextEncoding, original: OriginalModel) -> Recording:
    """Answers by transformers' tokenizer and the untouched model."""
    source = request.source
    spec = source.tokenizer_spec  # golden cases put a task's marker tokens in on their own
    settings = recording_settings(prepared)
    note = transformers_check.note(spec, examples.TEXTS)
    batching = source.signature.batch.possible
    recording = golden.record(original, source, request.task, settings, request.name, batching=batching)
    short = short_rows.note(original, source, request.task, settings)
    reference = text_reference.measure(request, settings, original, recording.cases)
    return replace(recording.noted(note, short, "" if recording.cases else NO_CASES), reference=reference)


def recording_settings(prepared: TextEncoding) -> golden.TokenizerSettings:
    """How transformers' tokenizer is set for the golden cases."""
    return golden.TokenizerSettings(
        max_length=prepared.max_length,
        # Rows that --padding makes longer are compared with the original's answers to the texts as they are.
        pad_to=0 if prepared.fixed.by is FixedBy.PADDING else prepared.fixed.tokens,
        pad_id=prepared.tokenizer.pad_id,
        positions_from_pad=prepared.tokenizer.positions_from_pad,
    )


def plan(request: PlanRequest, prepared: TextEncoding, recording: Recording | None) -> EndpointPlan:
    """Raises ``TrbError`` if the padding or the batching that was asked for is impossible."""
    source, task, options = request.source, request.task, request.options
    batch = source.signature.batch
    interaction = recording.interaction if recording else _unproven_interaction(request, prepared)
    if interaction and prepared.fixed.tokens and prepared.fixed.by is FixedBy.PADDING:
        raise usage("padding", f"{options.padding} changes answers: {interaction}", "leave it out")
    gpu = defaults.on_gpu(options, request.machine)
    padding = text_padding.decide(
        request, prepared.fixed, interaction or ("" if recording and recording.compared else UNPROVEN)
    )
    obstacle = batch.reason
    if interaction and padding.mode is not Mode.RAGGED and batch.possible:
        obstacle = f"{interaction}, and it cannot be run row by row: {padding.obstacle}"
        refuse_batching_options(request, obstacle)
        padding = text_padding.alone(padding)
    batching = not obstacle
    memory = text_memory.decide(request, padding, prepared.max_length, gpu=gpu)
    settings = defaults.decide(
        options,
        request.machine,
        ModelFacts(
            kind=Kind.TEXT,
            bytes=source.signature.bytes,
            tokens=request.tokens,
            obstacle=obstacle,
            padding=text_padding.setting(padding, options, obstacle),
            joins=text_padding.JOINS.get(padding.mode),
            rows=padding.rows if padding.mode is Mode.RAGGED else None,
            integer=source.signature.computes_in_integers,
            run_tokens=memory.run_tokens,
            run_memory=text_memory.described(memory.bytes),
            fitting_rows=memory.rows,
        ),
    )
    probes = _probes(prepared, task)
    inputs = onnx_model.model_inputs(source.signature, task)
    types = any(any(row.type_ids) for row in probes) and any(i.name == "token_type_ids" for i in inputs)
    spec = prepared.tokenizer
    tokens = TokenSettings(
        max_length=prepared.max_length,
        pad_id=spec.pad_id,
        pad_to=0 if padding.mode is Mode.RAGGED else prepared.fixed.tokens,
        row_length=prepared.fixed.tokens if padding.mode is Mode.RAGGED else 0,
        pad_to_batch_longest=padding.mode is Mode.BATCH,
        ragged=padding.mode is Mode.RAGGED,
        types=types,
        truncation_side=spec.truncation_side,
        splits_special=spec.splits_special,
        positions_from_pad=spec.positions_from_pad,
        stride=prepared.stride,
        max_text_bytes=options.max_text_bytes or 0,
        most_tokens=memory.most_tokens,
        cache=options.tokenizer_cache or 0,
        unknown_id=spec.unknown_id,
        vocabulary=text_limits.unknown_tokens(source, spec)[0],
    )
    # Without cases nothing shows that the model can run the sample, and a failing warm-up may end the server.
    warm = options.warmup and (recording is None or recording.cases is not None)
    sample, sample_files = _warmup(request, probes[-1], tokens, batching) if warm else ((), ())
    texts, text_files = _first_texts(request) if warm else ((), ())
    warmup = onnx_model.FirstRequests(model=sample, tokenizer=texts)
    repository = onnx_model.text(request, tokens, settings, warmup, batching=batching)
    rows = (("rows", padding.rows.value),) if padding.mode is Mode.RAGGED else ()
    root = f"{repository.models[1].name}/{options.version}"
    wheel = (options.tokenizers_wheel,) if options.tokenizers_wheel else ()
    reference = recording.reference if recording else _reference(request, prepared)
    return EndpointPlan(
        repository=repository,
        settings=settings,
        cases=_cases(recording, batching),
        files=(
            File(path=f"{root}/model.py", content=resources.runtime("tokenizer.py").read_bytes()),
            *_runtime(root, "long_texts.py"),
            *(_runtime(root, "token_cache.py") if tokens.cache else ()),
            _tokenizer_file(f"{root}/tokenizer.json", spec),
            File(path=f"{request.name}/{options.version}/.gitkeep", content=PLACEHOLDER),
            *sample_files,
            *text_files,
            *postprocess_files(task, request.name, options.version),
            *text_reference.files(request, reference),
        ),
        vendored=(Vendored(library="tokenizers", path=f"{root}/vendor", wheels=wheel),),
        front=_front(request, prepared, types, padding.rows, memory) if padding.mode is Mode.RAGGED else None,
        facts=(("padding", padding.name), *rows),
        notes=(
            *prepared.notes,
            *memory.notes,
            *(recording.notes if recording else _unproven(batching, interaction)),
            *(text_padding.fallback(padding, task, options) if batching else ()),
            *not_batched(obstacle),
            *filter(None, (text_reference.note(request, reference),)),
        ),
    )


def _reference(request: PlanRequest, prepared: TextEncoding) -> Reference | None:
    """Distributions of the tokens alone, for the original model is not run."""
    return text_reference.measure(request, recording_settings(prepared), None, None)


def _runtime(root: str, name: str) -> tuple[File, ...]:
    """A module beside the tokenizer model."""
    return (File(path=f"{root}/{name}", content=resources.runtime(name).read_bytes()),)


def _cases(recording: Recording | None, batching: bool) -> CaseFile | None:
    """The golden cases in the shapes of the endpoint."""
    cases = recording.cases if recording else None
    return cases if cases is None or batching else golden.alone(cases)


def _unproven_interaction(request: PlanRequest, prepared: TextEncoding) -> str:
    """Why rows must not be joined, as far as the graph alone shows it."""
    source, fixed = request.source, prepared.fixed
    own_length = bool(fixed.tokens) and fixed.by is not FixedBy.PADDING
    if source.signature.input("attention_mask") is None and not own_length:
        return UNMASKED
    return original.rows_interact(source)


def _unproven(batching: bool, interaction: str) -> tuple[str, ...]:
    """A note that no recorded answers prove the batching."""
    return (UNPROVEN,) if batching and not interaction else ()


def _front(request: PlanRequest, prepared: TextEncoding, types: bool, rows: Rows, memory: RunMemory) -> Front:
    inputs = onnx_model.model_inputs(request.source.signature, request.task)
    front = ragged.front(
        [(item.name, item.dtype.onnx) for item in inputs],
        pad_id=prepared.tokenizer.pad_id,
        types=types,
        chunks=request.task.encoding.chunks,
        positions_from_pad=prepared.tokenizer.positions_from_pad,
        rows=rows,
        most=memory.run_tokens or ragged.MOST,
    )
    return replace(front, blocks=memory.blocks, fill=dict(request.task.pad_values))


def _tokenizer_file(path: str, spec: TokenizerSpec) -> File:
    """A copy, no link: an edit of what is served must not reach the user's own file."""
    return File(path=path, content=files.read(spec.file) if spec.content is None else spec.content)


def _probes(prepared: TextEncoding, task: TaskPlan) -> list[Any]:
    """Two texts as the server will encode them, and before them a pair if the task takes pairs."""
    texts: list[tuple[str, ...]] = [(f"{text} {task.encoding.probe}".strip(),) for text in PROBES]
    pairs = [PROBES] if len(task.texts) > 1 else []
    return prepared.tokenizer.encode([*pairs, *texts], prepared.max_length)


def _first_texts(request: PlanRequest) -> tuple[tuple[WarmupInput, ...], list[File]]:
    """The tokenizer's first request: an empty text, or an example if not every text is answered."""
    task, inputs, files = request.task, [], []
    example = task.examples[0][1] if task.examples and task.encoding.parameters else {}
    for text in task.texts:
        values = example.get(text.name, ("",))
        file = text.name if example else ""
        dims = (len(values),)
        if not text.optional:
            inputs.append(
                WarmupInput(name=text.name, data_type="TYPE_STRING", dims=dims, input_data_file=file)
            )
        if file:
            # Strings in Triton's raw form: four bytes of length before each.
            raw = [value.encode() for value in values]
            content = b"".join(len(item).to_bytes(4, "little") + item for item in raw)
            files.append(File(path=f"{request.name}_tokenizer/warmup/{file}", content=content))
    return tuple(inputs), files


def _positions(ids: Sequence[int], settings: TokenSettings) -> tuple[Sequence[int], int]:
    if not settings.positions_from_pad:
        return range(len(ids)), 0
    return range(settings.pad_id + 1, settings.pad_id + 1 + len(ids)), settings.pad_id


def _warmup(
    request: PlanRequest, row: Any, settings: TokenSettings, batching: bool
) -> tuple[tuple[WarmupInput, ...], list[File]]:
    """A real text as the model's first request: random ids may be outside the vocabulary."""
    width = settings.pad_to or max(1, len(row.ids))
    values: dict[str, tuple[Sequence[int], int]] = {
        "input_ids": (row.ids, settings.pad_id),
        "attention_mask": ([1] * len(row.ids), 0),
        "token_type_ids": (row.type_ids, 0),
        "position_ids": _positions(row.ids, settings),
        tensor_names.TOKENS: (row.ids, tensor_names.PAD),
        tensor_names.TYPES: (row.type_ids, 0),
    }
    sample, files = [], []
    for tensor_name, dtype in onnx_model.encoded(request.source.signature, request.task, settings):
        content, pad = values[tensor_name]
        padded = [*content, *[pad] * (width - len(row.ids))]
        data = np.array(padded, dtype=np.dtype(dtype.numpy).newbyteorder("<")).tobytes()
        dims = (width,) if batching else (1, width)
        sample.append(
            WarmupInput(name=tensor_name, data_type=dtype.config, dims=dims, input_data_file=tensor_name)
        )
        files.append(File(path=f"{request.name}_model/warmup/{tensor_name}", content=data))
    return tuple(sample), files
