"""The parts of a text endpoint: how its rows travel, its tokenizer's settings, golden cases, warm-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from triton_repo_builder import resources
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.files import File
from triton_repo_builder.golden import original, transformers_check
from triton_repo_builder.golden import text as golden_text
from triton_repo_builder.golden.cases import CaseFile
from triton_repo_builder.graph import ragged
from triton_repo_builder.plan import onnx_model, tensors, text_axes, text_padding
from triton_repo_builder.plan.defaults import Settings
from triton_repo_builder.plan.model import Front, RepositoryPlan, WarmupInput
from triton_repo_builder.plan.onnx_model import TextSettings
from triton_repo_builder.read import tokenizer, tokenizer_template
from triton_repo_builder.read.options import BuildOptions, usage
from triton_repo_builder.read.source import Source
from triton_repo_builder.read.tokenizer import TokenizerSpec
from triton_repo_builder.render import vendor_tokenizers
from triton_repo_builder.tasks import question_answering, raw_outputs
from triton_repo_builder.tasks.support import examples, prompts
from triton_repo_builder.tasks.task import TaskPlan

PLACEHOLDER = b"An ensemble has no files, but Triton needs this folder, and git and S3 keep no empty ones.\n"
NO_CASES = (
    "no golden cases: the examples are too long for the model, or float noise changes their answers; "
    "trb smoke cannot prove them"
)
UNMASKED = "the model takes no attention_mask, so its answer to a text may change with the length of others"
PROBES = ("Hello", "The first request must not be slower than the others.")


@dataclass(frozen=True, kw_only=True)
class TextParts:
    """What a text endpoint consists of, besides what every model has."""

    plan: RepositoryPlan
    cases: CaseFile | None
    files: tuple[File, ...]
    front: Front | None
    padding: str
    """``ragged``, ``batch``, ``rows`` or ``fixed:N``, as it came to be."""
    notes: tuple[str, ...]
    not_batchable: str
    """Why the recorded answers forbid batching although the graph allows it; empty else."""
    settings: Settings
    """As they came to be."""


def parts(
    src: Source,
    task: TaskPlan,
    options: BuildOptions,
    name: str,
    chosen: Settings,
    *,
    batching: bool,
    runner: original.Original | None,
) -> TextParts:
    """Decide and record everything for a text endpoint. Raises ``TrbError``."""
    assert src.tokenizer is not None
    spec = src.tokenizer_spec
    check_vocabulary(src, spec)
    unmarked = spec  # golden cases put markers in on their own
    if task.rules is not None:
        spec = tokenizer_template.apply(spec, task.rules)
        options = replace(options, padding=f"fixed:{task.rules.pad_to}") if task.rules.pad_to else options
    text_axes.check(src, task)
    fixed, fixed_by = text_axes.fixed(src, options)
    if task.rules is not None and task.rules.pad_to and fixed_by == "--padding":
        fixed_by = "--query-length"
    positions = tokenizer.table_of_positions(src.config)
    max_length, notes = _max_length(spec, options, fixed, fixed_by, task, positions)
    prompts.check_room(src, task, max_length)
    stride = question_answering.stride(max_length) if task.encoding.strided and max_length else 0
    recording = golden_text.TextSettings(
        max_length=max_length,
        pad_to=fixed,
        pad_id=spec.pad_id,
        positions_from_pad=spec.positions_from_pad,
        tokenizer=unmarked,
    )
    recorded = None
    not_batchable = ""
    if runner is not None:
        notes = (*notes, *filter(None, (transformers_check.note(unmarked, examples.TEXTS),)))
        recorded = golden_text.text(runner, src, task, recording, name, batching=batching)
        if batching and not recorded.batchable:
            not_batchable, batching = recorded.note, False
            if task.post is None:
                recorded = golden_text.text(runner, src, task, recording, name, batching=False)
        if recorded.file is None:
            notes = (*notes, NO_CASES)
            # Nothing shows that the model can run the sample, and a warm-up that fails may end the server.
            options = replace(options, warmup=False)
    elif batching and not fixed and src.signature.input("attention_mask") is None:
        if options.batching == "on":
            notes = (*notes, f"{UNMASKED}; without golden cases nothing has shown that it does not")
        else:
            not_batchable, batching = f"{UNMASKED} (--batching on batches all the same)", False
    encodings = _encode(spec, task, max_length)
    inputs = onnx_model.model_inputs(src.signature, task)
    asked = f"--padding {options.padding} was asked for"
    obstacle = text_padding.obstacle(src, task, batching, fixed) if options.padding == "ragged" else asked
    types = any(any(row.type_ids) for row in encodings) and any(i.name == "token_type_ids" for i in inputs)
    front = None
    if not_batchable:
        obstacle = not_batchable
    if obstacle and (task.encoding.segments or (task.post and not batching)):
        grounds = not_batchable or text_padding.obstacle(
            src, task, batching, fixed if fixed_by == "the graph" else 0
        )
        _refuse(src, task, grounds, options)
    if not obstacle:
        wanted = [(item.name, item.dtype.onnx) for item in inputs]
        text = ragged.front(
            wanted,
            pad_id=spec.pad_id,
            types=types,
            segments=task.encoding.segments,
            positions_from_pad=spec.positions_from_pad,
        )
        front = Front(text=text)
    together = front is None and batching and not fixed and options.padding != "rows"
    if together and task.head is None and (own := raw_outputs.per_token(src)):
        # Its client would get an answer as long as somebody else's text.
        if options.padding == "batch":
            raise usage("padding", f"output '{own}' is as long as its row", "use --padding rows")
        together = False
    if front is None and options.padding == "ragged":
        notes = (*notes, *text_padding.fallback(obstacle, batching, fixed, together))
    settings = TextSettings(
        max_length=max_length,
        pad_id=spec.pad_id,
        pad_to=fixed,
        together=together,
        ragged=front is not None,
        types=types,
        truncation_side=spec.truncation_side,
        positions_from_pad=spec.positions_from_pad,
        stride=stride,
    )
    padded = "ragged" if front else f"fixed:{fixed}" if fixed else "batch" if together else "rows"
    if not batching:
        chosen = chosen.unbatched(not_batchable or src.signature.batch.reason)
        obstacle = f"the model takes one text at a time: {chosen.batching.reason}"
    chosen = text_padding.settle(chosen, options, padded, obstacle, fixed_by)
    sample, warm_files = _warmup(src, task, options, name, encodings[-1], settings, batching)
    texts, text_files = _first_texts(task, options, name)
    plan = onnx_model.text(
        name, src.signature, task, options, settings, chosen, batching=batching, sample=sample, texts=texts
    )
    root = f"{plan.models[1].name}/{options.version}"
    files = (
        File(path=f"{root}/model.py", content=resources.runtime("tokenizer.py").read_bytes()),
        _tokenizer_file(f"{root}/tokenizer.json", spec),
        File(path=f"{name}/{options.version}/.gitkeep", content=PLACEHOLDER),
        *vendor_tokenizers.tokenizers(f"{root}/vendor", options.tokenizers_wheel),
        *warm_files,
        *text_files,
        *_postprocess(task, name, options.version),
    )
    return TextParts(
        plan=plan,
        cases=recorded.file if recorded else None,
        files=files,
        front=front,
        padding=padded,
        notes=notes,
        not_batchable=not_batchable,
        settings=chosen,
    )


def _tokenizer_file(path: str, spec: TokenizerSpec) -> File:
    """The user's own file where that is what is served."""
    if spec.content is None:
        return File(path=path, source=spec.file)
    return File(path=path, content=spec.content)


def _refuse(src: Source, task: TaskPlan, obstacle: str, options: BuildOptions) -> None:
    """Because of the graph where that has an obstacle of its own; else the option alone is in the way."""
    if not obstacle:
        raise usage(
            "padding",
            f"{options.padding}: the task {task.name} needs rows of any length in a batch",
            "leave it out",
        )
    raise TrbError(
        Code.NOT_BATCHABLE,
        f"the task {task.name} needs a model that takes rows of any length in a batch: {obstacle}",
        where=str(src.path),
        remedy="export again with dynamic axes [batch, tokens] on every input (optimum's default), "
        "or use --task tensor",
    )


def _postprocess(task: TaskPlan, name: str, version: int) -> tuple[File, ...]:
    """The files of the Python model at the end, where the task has one."""
    if task.post is None:
        return ()
    root = f"{name}_postprocess/{version}"
    return (
        File(path=f"{root}/model.py", content=resources.runtime("postprocess.py").read_bytes()),
        File(path=f"{root}/answer.py", content=resources.runtime(f"answers/{task.post.module}").read_bytes()),
        *(File(path=f"{root}/{file}", content=content) for file, content in task.post.files().items()),
    )


def _first_texts(
    task: TaskPlan, options: BuildOptions, name: str
) -> tuple[tuple[WarmupInput, ...], list[File]]:
    """The tokenizer's first request: an empty text, or an example where not every text is answered."""
    if not options.warmup:
        return (), []
    inputs, files = [], []
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
            files.append(File(path=f"{name}_tokenizer/warmup/{file}", content=content))
    return tuple(inputs), files


def check_vocabulary(src: Source, spec: TokenizerSpec) -> None:
    """``TrbError`` TOKENIZER_MISMATCH where the tokenizer knows ids that the model has no row for."""
    rows, shown = src.signature.vocabulary, "its embedding table"
    if rows is None:
        rows, shown = src.config.get("vocab_size"), "its config.json"
    if isinstance(rows, int) and spec.largest_id >= rows:
        raise TrbError(
            Code.TOKENIZER_MISMATCH,
            f"the tokenizer's ids go up to {spec.largest_id}, but {shown} has {rows} rows (0 to {rows - 1})",
            where=str(spec.file),
            remedy=f"use the tokenizer that {src.path.name} was trained with (--tokenizer)",
        )


def _max_length(
    spec: TokenizerSpec,
    options: BuildOptions,
    fixed: int,
    fixed_by: str,
    task: TaskPlan,
    positions: int | None,
) -> tuple[int | None, tuple[str, ...]]:
    """Where truncation sets in, and what the user should know of it."""
    known = (
        (spec.max_length, spec.max_length_from),
        (positions, "config.json"),
        (fixed, fixed_by),
    )
    limits = [(limit, why) for limit, why in known if limit]
    _check_fixed(limits, fixed, fixed_by)
    if options.max_length is not None:
        # sentence-transformers' limit is what the model was trained on; it may well take more, as far as its
        # positions go.
        hard = [entry for entry in limits if entry[1] != "sentence_bert_config.json"]
        limit, why = min(hard) if hard else (options.max_length, "")
        if options.max_length > limit:
            raise usage(
                "max_length",
                f"{options.max_length} is more than the model's maximum of {limit} ({why})",
                "lower it, or leave it out",
            )
        limits = [(options.max_length, "--max-length")]
    elif task.encoding.longest:
        limits.append((task.encoding.longest, "the task"))
    if not limits:
        return None, (
            "no file says how many tokens the model can take: texts are not truncated (set --max-length)",
        )
    limit, why = min(limits)
    special, least = _least(spec, task)
    if limit < least:
        shared = ", and pieces of a long text share some" if task.encoding.strided else ""
        whole = " or of what is never cut" if task.encoding.whole else ""
        option = why if why.startswith("--") else "--max-length"
        raise TrbError(
            Code.USAGE if why.startswith("--") else Code.TOKENIZER_INVALID,
            f"{why} allows {limit} tokens, and {special} of each text are special ones{whole}{shared}",
            where=str(spec.file.parent),
            remedy=f"set {option} to {'fixed:' if option == '--padding' else ''}{least} or more",
        )
    return limit, ()


def _check_fixed(limits: Sequence[tuple[int, str]], fixed: int, fixed_by: str) -> None:
    """``TrbError`` USAGE where every row shall have more tokens than the model can take."""
    hard = [entry for entry in limits if entry[1] not in ("sentence_bert_config.json", fixed_by)]
    if fixed_by.startswith("--") and hard and fixed > min(hard)[0]:
        limit, why = min(hard)
        raise usage(
            fixed_by.removeprefix("--"),
            f"{fixed} is more than the model's maximum of {limit} ({why})",
            "lower it",
        )


def _least(spec: TokenizerSpec, task: TaskPlan) -> tuple[int, int]:
    """Special tokens of a row, and the fewest tokens with which each piece of a text brings something new."""
    library = spec.library
    pairs = len(task.texts) > 1 and not task.texts[1].optional
    special = library.num_special_tokens_to_add(pairs)
    if task.encoding.whole:
        special = len(library.encode("", task.encoding.whole).ids)
    shared = question_answering.stride if task.encoding.strided else (lambda limit: 0)
    return special, next(limit for limit in count(special + 1) if limit - special > shared(limit))


def _encode(spec: TokenizerSpec, task: TaskPlan, max_length: int | None) -> list[Any]:
    """Two texts as the served tokenizer will encode them, and before them a pair where the task takes any."""
    texts: list[tuple[str, ...]] = [(f"{text} {task.encoding.probe}".strip(),) for text in PROBES]
    pairs = [PROBES] if len(task.texts) > 1 else []
    return spec.encode([*pairs, *texts], max_length)


def _positions(ids: Sequence[int], settings: TextSettings) -> tuple[Sequence[int], int]:
    if not settings.positions_from_pad:
        return range(len(ids)), 0
    return range(settings.pad_id + 1, settings.pad_id + 1 + len(ids)), settings.pad_id


def _warmup(
    src: Source,
    task: TaskPlan,
    options: BuildOptions,
    name: str,
    row: Any,
    settings: TextSettings,
    batching: bool,
) -> tuple[tuple[WarmupInput, ...], list[File]]:
    """A real text as the model's first request: random ids may be outside the vocabulary."""
    if not options.warmup:
        return (), []
    width = settings.pad_to or max(1, len(row.ids))
    values: dict[str, tuple[Sequence[int], int]] = {
        "input_ids": (row.ids, settings.pad_id),
        "attention_mask": ([1] * len(row.ids), 0),
        "token_type_ids": (row.type_ids, 0),
        "position_ids": _positions(row.ids, settings),
        tensors.TOKENS: (row.ids, tensors.PAD),
        tensors.TYPES: (row.type_ids, 0),
    }
    sample, files = [], []
    for tensor_name, dtype in onnx_model.encoded(src.signature, task, settings):
        content, filler = values[tensor_name]
        padded = [*content, *[filler] * (width - len(row.ids))]
        data = np.array(padded, dtype=np.dtype(dtype.numpy).newbyteorder("<")).tobytes()
        dims = (width,) if batching else (1, width)
        sample.append(
            WarmupInput(name=tensor_name, data_type=dtype.config, dims=dims, input_data_file=tensor_name)
        )
        files.append(File(path=f"{name}_model/warmup/{tensor_name}", content=data))
    return tuple(sample), files
