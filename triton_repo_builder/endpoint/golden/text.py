"""Records golden cases of a text endpoint.

Text goes through the *transformers* tokenizer and ONNX Runtime on the *untouched* file, and the task's
numpy arithmetic; the server uses the `tokenizers` library, the composed graph and Triton. If the two
agree, the repository is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.golden import original, probabilities, tolerance
from triton_repo_builder.endpoint.golden.original import Recording
from triton_repo_builder.endpoint.tasks.support.examples import SINGLE
from triton_repo_builder.endpoint.tasks.task import (
    Encoded,
    Example,
    OriginalRun,
    TaskPlan,
    rows_of_texts,
)
from triton_repo_builder.model.read import tokenizer as tokenizer_files
from triton_repo_builder.model.read import tokenizer_limits, transformers_library
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository import cases
from triton_repo_builder.repository.cases import Case, CaseFile, CaseTensor

CHARACTERS, ROOM = 16, 200
"""Characters of a text of a pair: for each token that it may have, and besides."""
NOISES = 3
"""Times that an answer is computed again with noise on the model's outputs."""


NEIGHBOUR = 64
"""Most tokens of the long neighbour in a batch, if its rows change an answer by float noise only."""


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """How the served tokenizer will be set, so that the recording path is set alike."""

    max_length: int | None
    pad_to: int
    """0: no padding beyond the request's longest row."""
    pad_id: int
    positions_from_pad: bool = False


def record(
    model: original.OriginalModel,
    source: Source,
    task: TaskPlan,
    settings: TokenizerSettings,
    endpoint: str,
    *,
    batching: bool,
) -> Recording:
    """Golden cases of a text endpoint: texts in, the task's outputs out; also beside a long neighbour."""
    tokenizer = library(source)
    examples = [
        (name, short(task, example, settings.max_length)) for name, example in task.examples or SINGLE
    ]
    runs = {
        name: run
        for name, example in examples
        if (run := run_one(model, source, task, tokenizer, example, settings)) is not None
    }
    measured = [(run.outputs, run.mask) for run in runs.values()]
    probabilities.refuse(source, task.name, task.softmaxed, measured)
    answers = {name: answer_of(task, run) for name, run in runs.items()}
    # An answer that float noise would change proves nothing: such a case is left out.
    kept = [
        (name, run.example) for name, run in runs.items() if stable(task, run, answers[name], model.unsure)
    ]
    recorded = tuple(
        Case(
            name=name,
            inputs=tuple(
                CaseTensor(name=text, datatype="BYTES", shape=(1, len(texts)), data=texts)
                for text, texts in example.items()
            ),
            outputs=outputs(task, answers[name], model.unsure),
        )
        for name, example in kept
    )
    tools = f"transformers {transformers_library.version()} tokenizer"
    file = CaseFile(
        endpoint=endpoint,
        recorded_with=model.recorded_with(source, tools),
        tolerance=model.tolerance(recorded),
        cases=recorded,
    )
    interaction = ""
    if batching:
        interaction = original.rows_interact(source) or _interaction(
            model, source, task, settings, runs, recorded
        )
    cases = file if recorded else None
    return Recording(cases=cases, batchable=batching, interaction=interaction, compared=bool(runs))


def short(task: TaskPlan, example: Example, limit: int | None) -> Example:
    """Two texts as long as the limit needs.

    Of texts that are cut to equal shares, the library joins each piece that it cuts off of one with each
    of the other: gigabytes for a limit of some tokens and a page of text.
    """
    if not limit or len(example) < 2 or task.encoding.truncation != "longest_first":
        return example
    return {
        name: tuple(text[: CHARACTERS * limit + ROOM] for text in texts) for name, texts in example.items()
    }


def _interaction(
    model: original.OriginalModel,
    source: Source,
    task: TaskPlan,
    settings: TokenizerSettings,
    runs: Mapping[str, OriginalRun],
    recorded: Sequence[Case],
) -> str:
    """Why rows must not be joined, shown by the original's own answers in a batch; empty if they may.

    Examples that were left out of the golden cases, because noise may decide their answer, count, too.
    """
    noise = tolerance.together(recorded, model.own_noise, model.rounding)
    cases_by_name = {case.name: case for case in recorded}
    try:
        for name, outputs, mask in _batched(model, source, settings, runs):
            if _drift(task, runs[name], outputs, mask, cases_by_name.get(name)) > noise:
                return "its answer to a text changes with the other texts in the batch"
    except TrbError:
        # BART's classifier refuses rows that end in another number of end tokens.
        return "it fails on texts of different length in a batch"
    return ""


def alone(file: CaseFile) -> CaseFile:
    """The cases for an endpoint without a batch axis."""
    return replace(file, cases=tuple(map(cases.unbatched, file.cases)))


def encoded(task: TaskPlan, tokenizer: Any, example: Example, limit: int | None) -> list[Encoded] | None:
    """The original model's rows for one of the endpoint; None if they cannot be encoded."""
    try:
        return tokenizer_limits.in_time(lambda: (task.encode or rows_of_texts)(tokenizer, example, limit))
    except (MemoryError, TrbError):
        raise
    except Exception as error:
        if task.encode is None:
            raise TrbError(
                Code.TOKENIZER_INVALID,
                f"the tokenizer fails on a text: {error}",
                remedy="get its files again from the model's source",
            ) from None
        # A model of few tokens has no room for a long question or label: no case, and no fault.
        return None


def run_one(
    model: original.OriginalModel,
    source: Source,
    task: TaskPlan,
    tokenizer: Any,
    example: Example,
    settings: TokenizerSettings,
) -> OriginalRun | None:
    """The original model's outputs for one row of the endpoint; None if they cannot be encoded."""
    rows = encoded(task, tokenizer, example, settings.max_length)
    if rows is None:
        return None
    outputs, mask = run_rows(model, source, rows, settings)
    return OriginalRun(tokenizer=tokenizer, example=example, rows=rows, outputs=outputs, mask=mask)


def answer_of(task: TaskPlan, run: OriginalRun) -> dict[str, npt.NDArray[Any]]:
    """The endpoint's answer to a row, computed from the original model's outputs."""
    return task.answer(run) if task.answer else task.reference(run.outputs, run.mask)


def stable(task: TaskPlan, run: OriginalRun, answer: Mapping[str, npt.NDArray[Any]], size: float) -> bool:
    """Whether the discrete part of an answer (a span, an order) survives noise on the model's outputs."""
    if task.answer is None:
        return True
    for seed in range(NOISES):
        noise = np.random.default_rng(seed)
        noisy_outputs = {name: _with_noise(array, noise, size) for name, array in run.outputs.items()}
        other = task.answer(replace(run, outputs=noisy_outputs))
        for plan in task.answers:
            exact, noisy = answer[plan.name], other[plan.name]
            if exact.shape != noisy.shape:
                return False
            expected = _record(task, plan.name, exact)
            if (
                expected.datatype not in tolerance.FLOATS
                and not cases.difference(expected, noisy) < 10 * size
            ):
                return False
    return True


def _with_noise(array: npt.NDArray[Any], noise: np.random.Generator, size: float) -> npt.NDArray[Any]:
    """The array with noise; stand-ins for minus infinity stay."""
    if array.dtype.kind != "f":
        return array
    with np.errstate(invalid="ignore"):
        moved = array + noise.uniform(-1, 1, array.shape) * size * np.maximum(1, np.abs(array))
    return np.where(np.isfinite(array), moved, array).astype(array.dtype)


def _width(rows: Sequence[Encoded]) -> int:
    """Tokens of the longest row."""
    return max((len(row["input_ids"]) for row in rows), default=0)


def _neighbour(runs: Iterable[OriginalRun], special: Sequence[int] = ()) -> Sequence[Encoded]:
    """The rows that share a batch with each case.

    Some tokens more than the cases have show as well as the longest text whether padding moves an answer, in
    a fraction of the time. Its last token stays the last, and ``special`` tokens are in it, as in a text that
    spells them: a model that looks for its end tokens must not find another row's.
    """
    widths = {_width(run.rows): run.rows for run in runs}
    longest = widths.get(max(widths, default=0), ())
    if not longest:
        return longest
    row = max(longest, key=lambda row: len(row["input_ids"]))
    enough = [min(width + 4, NEIGHBOUR) for width in widths if width < NEIGHBOUR]
    length = min(max(NEIGHBOUR // 2, 2 * min(widths), *enough), len(row["input_ids"]))
    cut = {name: [*row[name][: length - 1], *row[name][-1:]] for name in ("input_ids", "token_type_ids")}
    spelt = special[: max(0, length - 2)]
    cut["input_ids"][1 : 1 + len(spelt)] = spelt
    return [cut]


def _special_tokens(source: Source, runs: Iterable[OriginalRun]) -> Sequence[int]:
    """Special tokens that a text may spell; tokens at the ends of rows come first."""
    if source.tokenizer_spec.splits_special:
        return ()
    ids: list[int] = []
    for run in runs:
        ends = [row["input_ids"][place] for row in run.rows for place in (-1, 0) if row["input_ids"]]
        ids += [*ends, *run.tokenizer.all_special_ids]
    vocabulary_size = source.signature.vocabulary
    return [token for token in dict.fromkeys(ids) if vocabulary_size is None or token < vocabulary_size]


def _batched(
    model: original.OriginalModel,
    source: Source,
    settings: TokenizerSettings,
    runs: Mapping[str, OriginalRun],
) -> Iterable[tuple[str, dict[str, npt.NDArray[Any]], npt.NDArray[Any]]]:
    """Outputs of each run in a batch with a neighbour that is at least as long.

    All runs share one batch, for most of the time of a large encoder's build is spent here.
    """
    long = _neighbour(runs.values(), _special_tokens(source, runs.values()))
    short = {name: run.rows for name, run in runs.items() if _width(run.rows) <= _width(long)}
    if not short:
        return
    outputs, mask = run_rows(model, source, [*chain(*short.values()), *long], settings)
    first = 0
    for name, rows in short.items():
        own_rows = slice(first, first := first + len(rows))
        yield name, {output: array[own_rows] for output, array in outputs.items()}, mask[own_rows]


def _drift(
    task: TaskPlan,
    run: OriginalRun,
    outputs: Mapping[str, npt.NDArray[Any]],
    mask: npt.NDArray[Any],
    case: Case | None,
) -> float:
    """How far the original model's outputs, and its numeric answer, move in a batch.

    For numeric answers (``case``), also compare the model's raw outputs: scores near 1 hide drift in the
    logits.
    """
    moved = 0.0
    if task.answer is None and case is not None:
        moved = _answer_drift(case, task.reference(outputs, mask))
    read = {*task.head.bind.values()} if task.head else {*run.outputs}
    for name, array in run.outputs.items():
        if array.dtype.kind != "f" or name not in read:
            continue
        part = outputs[name][tuple(slice(size) for size in array.shape)]
        if part.shape != array.shape:
            return float("inf")
        # Places of padding belong to no answer.
        kept = run.mask.astype(bool) if array.shape[:2] == run.mask.shape else slice(None)
        with np.errstate(invalid="ignore"):  # stand-ins for minus infinity
            differences = np.where(part == array, 0, np.abs(part - array))
        off = float(differences[kept].max(initial=0.0))
        # The tolerance is the answer's, whose numbers are no larger than the outputs it is computed from.
        sizes = np.abs(array[kept])
        off /= max(1.0, float(sizes[np.isfinite(sizes)].max(initial=0.0)))
        moved = max(moved, off if np.isfinite(off) else float("inf"))
    return moved


def _answer_drift(case: Case, batch_answer: Mapping[str, npt.NDArray[Any]]) -> float:
    """How far the numbers of the case's answer move in a batch."""
    keys = {tensor.at for tensor in case.outputs if tensor.at}
    numbers = [t for t in case.outputs if t.datatype != "BYTES" and t.name not in keys]
    # An output per token is as long as the longest row of the batch; the case's own part comes first.
    case_part = {
        t.name: batch_answer[t.name][tuple(slice(size) for size in t.shape)] for t in numbers if not t.at
    }
    row = {name: array[:1] for name, array in batch_answer.items()} | case_part
    return max((cases.among(case.outputs, t, row) for t in numbers), default=0.0)


def library(source: Source) -> Any:
    """The tokenizer as transformers reads it from its folder."""
    # Not AutoTokenizer, which does not always follow tokenizer.json: see transformers_check.py.
    fast = transformers_library.load().PreTrainedTokenizerFast
    spec = source.tokenizer_spec
    tokenizer = spec.library  # of which transformers makes a copy of its own
    special = {
        name: token
        for name in fast.SPECIAL_TOKENS_ATTRIBUTES
        if isinstance(token := tokenizer_files.token(spec.file.parent, name), str)
        and tokenizer_files.token_id(tokenizer, token) is not None
    }
    return fast(
        tokenizer_object=tokenizer,
        truncation_side=spec.truncation_side,
        split_special_tokens=spec.splits_special,
        **special,
    )


def run_rows(
    model: original.OriginalModel, source: Source, rows: Sequence[Encoded], settings: TokenizerSettings
) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any]]:
    """(outputs, mask) of the original model on these rows, padded on the right."""
    filled = tensors(rows, settings)
    width = filled["input_ids"].shape[1]
    try:
        values = model.run(None, feeds(source, filled))
    except TrbError:
        raise
    except Exception as error:
        raise TrbError(
            Code.GOLDEN_FAILED,
            f"the original model fails on {width} tokens: {original.first_line(error)}",
            where=str(source.path),
            remedy="if the text is longer than the model can take, set --max-length; else the tokenizer is "
            "another model's, or the export has kept the length of its example text: export it again, and "
            "compare it with the original model at two lengths",
        ) from None
    outputs = dict(zip((spec.name for spec in source.signature.outputs), values, strict=True))
    return {"input_ids": filled["input_ids"], **outputs}, filled["attention_mask"]


def feeds(source: Source, filled: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """The model's inputs, picked from ``filled``, in its types."""
    return {spec.name: filled[spec.name].astype(spec.dtype.numpy) for spec in source.signature.inputs}


def tensors(rows: Sequence[Encoded], settings: TokenizerSettings) -> dict[str, npt.NDArray[Any]]:
    """All tensors that a text model may take for these rows, padded on the right."""
    width = settings.pad_to or max(1, *(len(row["input_ids"]) for row in rows))
    filled = {
        "input_ids": np.full((len(rows), width), settings.pad_id, dtype=np.int64),
        "attention_mask": np.zeros((len(rows), width), dtype=np.int64),
        "token_type_ids": np.zeros((len(rows), width), dtype=np.int64),
        "position_ids": np.zeros((len(rows), width), dtype=np.int64),
    }
    for number, row in enumerate(rows):
        length = len(row["input_ids"])
        filled["input_ids"][number, :length] = row["input_ids"]
        filled["token_type_ids"][number, :length] = row["token_type_ids"]
        filled["attention_mask"][number, :length] = 1
        filled["position_ids"][number] = _positions(filled["input_ids"][number], length, settings)
    return filled


def _positions(ids: npt.NDArray[Any], length: int, settings: TokenizerSettings) -> npt.NDArray[Any]:
    """Position ids of one padded row; from the pad id as transformers' create_position_ids_from_input_ids."""
    if settings.positions_from_pad:
        real = ids != settings.pad_id
        return np.where(real, np.cumsum(real) + settings.pad_id, settings.pad_id)
    return np.where(np.arange(len(ids)) < length, np.arange(len(ids)), 0)


def outputs(task: TaskPlan, answer: Mapping[str, npt.NDArray[Any]], size: float) -> tuple[CaseTensor, ...]:
    """The answer as case tensors. A label that wins by less than float noise proves nothing: left out."""
    tied = False
    if len(task.labels) > 1 and "label" in answer:
        second, first = np.sort(answer["scores"][0])[-2:]
        tied = bool(first - second < 10 * size)
    keys = dict(task.sparse)
    return tuple(
        replace(_record(task, name, array), at=keys.get(name, ""))
        for name, array in sorted(answer.items())
        if not (tied and name == "label")
    )


def _record(task: TaskPlan, name: str, array: npt.NDArray[Any]) -> CaseTensor:
    planned = next(tensor for tensor in task.answers if tensor.name == name)
    wire = "BYTES" if planned.data_type == "TYPE_STRING" else planned.data_type.removeprefix("TYPE_")
    return cases.record(name, wire, array)
