"""Records golden cases by a path that shares nothing with serving.

Text goes through the *transformers* tokenizer and ONNX Runtime on the *untouched* file, and the task's
numpy arithmetic; the server uses the `tokenizers` library, the composed graph and Triton. Where the two
agree, the repository is right.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder import cases
from triton_repo_builder import tokenizer as tokenizer_files
from triton_repo_builder.cases import Case, CaseFile, CaseTensor, Tolerance
from triton_repo_builder.errors import Exit, TrbError
from triton_repo_builder.signature import Dim, TensorSpec
from triton_repo_builder.source import Source
from triton_repo_builder.tasks.base import Asked, Encoded, Example, TaskPlan
from triton_repo_builder.tasks.examples import SINGLE
from triton_repo_builder.tokenizer import TokenizerSpec

FLOATS = ("FP16", "FP32", "FP64")
"""Only these carry float noise: a large integer is no reason to be lenient."""
ABSOLUTE = 1e-4
HALF = 5e-3
DEPENDENT = 0.1
"""Of the largest number: an answer that a neighbour moves by more depends on it."""
NOISES = 3
"""Times that an answer is computed again with noise on the model's outputs."""
_ONNXRUNTIME = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from .* failed:)?")
FREE_SIZES = (8, 1, 16, 32, 64, 128, 224, 256)
"""Sizes tried for the open axes of a tensor model, until it accepts one."""


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """How the served tokenizer will be set, so that the recording path is set alike."""

    max_length: int | None
    pad_to: int
    """0: no padding beyond the request's longest row."""
    pad_id: int
    positions_from_pad: bool = False
    tokenizer: TokenizerSpec | None = None
    """The tokenizer as it is served; None: the file beside the model."""


def session(source: Source) -> Any:
    """ONNX Runtime on the user's own file, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(source.path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise TrbError(
            Exit.GOLDEN_FAILED,
            f"ONNX Runtime cannot load the model: {_first_line(error)}",
            where=str(source.path),
            remedy="repair or re-export the model; --no-golden builds without proving its answers",
        ) from None


def output_shapes(runner: Any) -> dict[str, tuple[Dim, ...]]:
    """Output shapes as ONNX Runtime infers them, which is what Triton will compare with.

    ONNX Runtime gives no sizes both for a scalar and for an unknown shape: neither is listed.
    """
    return {output.name: tuple(output.shape) for output in runner.get_outputs() if output.shape}


def _recorded_with(source: Source, *others: str) -> str:
    import onnxruntime

    tools = [*others, f"ONNX Runtime {onnxruntime.__version__} (CPU)"]
    return f"{' + '.join(tools)} on the original {source.path.name}"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Golden cases, and whether the model's rows turned out to be independent of each other."""

    file: CaseFile | None
    batchable: bool
    note: str = ""


def text(
    runner: Any, source: Source, task: TaskPlan, settings: TextSettings, endpoint: str, *, batching: bool
) -> Recorded:
    """Golden cases of a text endpoint: texts in, the task's outputs out; also beside a long neighbour."""
    library = _tokenizer(source, settings)
    examples = task.examples or SINGLE
    asked = {
        name: one
        for name, example in examples
        if (one := _ask(runner, source, task, library, example, settings)) is not None
    }
    answers = {name: _answer(task, one) for name, one in asked.items()}
    # An answer that float noise would change proves nothing: such a case is left out.
    kept = [(name, one.example) for name, one in asked.items() if _stable(task, one, answers[name])]
    recorded = tuple(
        Case(
            name=name,
            inputs=tuple(
                CaseTensor(
                    name=given,
                    datatype="BYTES",
                    shape=(1, len(texts)) if batching else (len(texts),),
                    data=texts,
                )
                for given, texts in example.items()
            ),
            outputs=_outputs(task, answers[name]),
        )
        for name, example in kept
    )
    drift, problem = 0.0, ""
    long = max(asked.values(), key=lambda one: max(len(row["input_ids"]) for row in one.rows), default=None)
    for case in recorded if batching and long else ():
        assert long is not None
        moved, relative = _beside(runner, source, task, settings, asked[case.name], long, case)
        # Quantising activations by the largest in the batch moves answers; more than that is another text.
        if relative > (0.5 if source.signature.quantised else DEPENDENT):
            problem = "its answer to a text changes with the length of the other texts in the batch"
            break
        drift = max(drift, moved)
    file = CaseFile(
        endpoint=endpoint,
        recorded_with=_recorded_with(source, f"transformers {metadata.version('transformers')} tokenizer"),
        tolerance=tolerance(recorded, drift),
        cases=recorded,
    )
    return Recorded(file=file if recorded else None, batchable=batching and not problem, note=problem)


def _ask(
    runner: Any, source: Source, task: TaskPlan, library: Any, example: Example, settings: TextSettings
) -> Asked | None:
    """The original model's outputs for one row of the endpoint; None where they cannot be encoded."""
    try:
        rows = (task.encode or _rows_of_texts)(library, example, settings.max_length)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException:  # a panic of the Rust library is no Exception
        if task.encode is None:
            raise
        # A model of few tokens has no room for a long question or label: no case, and no fault.
        return None
    outputs, mask = _run_rows(runner, source, rows, settings)
    return Asked(tokenizer=library, example=example, rows=rows, outputs=outputs, mask=mask)


def _answer(task: TaskPlan, asked: Asked) -> dict[str, npt.NDArray[Any]]:
    return task.answer(asked) if task.answer else task.reference(asked.outputs, asked.mask)


def _stable(task: TaskPlan, asked: Asked, answer: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Whether what is no number in an answer (a span, an order) outlives noise on the model's outputs."""
    if task.answer is None:
        return True
    for seed in range(NOISES):
        noise = np.random.default_rng(seed)
        shaken = {name: _shaken(array, noise) for name, array in asked.outputs.items()}
        other = task.answer(replace(asked, outputs=shaken))
        for plan in task.answers:
            mine, theirs = answer[plan.name], other[plan.name]
            if mine.shape != theirs.shape:
                return False
            expected = _record(task, plan.name, mine)
            if expected.datatype not in FLOATS and not cases.difference(expected, theirs) < 10 * ABSOLUTE:
                return False
    return True


def _shaken(array: npt.NDArray[Any], noise: np.random.Generator) -> npt.NDArray[Any]:
    """The same numbers but for noise; what stands for minus infinity stays."""
    if array.dtype.kind != "f":
        return array
    with np.errstate(invalid="ignore"):
        moved = array + noise.uniform(-1, 1, array.shape) * ABSOLUTE * np.maximum(1, np.abs(array))
    return np.where(np.isfinite(array), moved, array).astype(array.dtype)


def _beside(
    runner: Any,
    source: Source,
    task: TaskPlan,
    settings: TextSettings,
    own: Asked,
    neighbour: Asked,
    case: Case,
) -> tuple[float, float]:
    """How far the original model's own answer moves when a long neighbour shares its batch.

    Absolute, and relative to the largest number of the output.
    """
    both, mask = _run_rows(runner, source, [*own.rows, *neighbour.rows], settings)
    outputs = {name: array[: len(own.rows)] for name, array in both.items()}
    if task.answer is None:
        return _drift(case, task.reference(outputs, mask[: len(own.rows)]))
    moved, relative = 0.0, 0.0
    for name, array in own.outputs.items():
        if array.dtype.kind != "f":
            continue
        part = outputs[name][tuple(slice(size) for size in array.shape)]
        # Places of padding belong to no answer.
        kept = own.mask.astype(bool) if array.shape[:2] == own.mask.shape else slice(None)
        off = float(np.abs(part - array)[kept].max(initial=0.0))
        off = off if np.isfinite(off) else float("inf")
        moved, relative = max(moved, off), max(relative, off / max(1e-6, float(np.abs(array[kept]).max())))
    return moved, relative


def _drift(case: Case, both: Mapping[str, npt.NDArray[Any]]) -> tuple[float, float]:
    """How far the original model's own answer moves when a long neighbour shares its batch.

    Absolute, and relative to the largest number of the output.
    """
    keys = {tensor.at for tensor in case.outputs if tensor.at}
    numbers = [t for t in case.outputs if t.datatype != "BYTES" and t.name not in keys]
    # An output per token is as long as the longest row of the batch; the case's own part comes first.
    own = {t.name: both[t.name][tuple(slice(size) for size in t.shape)] for t in numbers if not t.at}
    row = {name: array[:1] for name, array in both.items()} | own
    moved = [(cases.among(case.outputs, t, row), _scale(t)) for t in numbers]
    return max((m for m, _ in moved), default=0.0), max((m / scale for m, scale in moved), default=0.0)


def _scale(tensor: CaseTensor) -> float:
    """The largest finite number of a recorded output, held above 0."""
    numbers = [abs(v) for v in tensor.data if isinstance(v, (int, float)) and np.isfinite(v)]
    return max([1e-6, *map(float, numbers)])


def _tokenizer(source: Source, settings: TextSettings) -> Any:
    """The tokenizer as transformers reads it from its folder."""
    # Only its tokenizers are used: no advice on missing frameworks.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    assert source.tokenizer is not None
    # Not AutoTokenizer, which does not always follow tokenizer.json: see auto_tokenizer.py.
    spec = settings.tokenizer or tokenizer_files.read(source.tokenizer)
    library = Tokenizer.from_str(spec.served.decode("utf-8"))
    special = {
        name: token
        for name in PreTrainedTokenizerFast.SPECIAL_TOKENS_ATTRIBUTES
        if isinstance(token := tokenizer_files.token(spec.file.parent, name), str)
        and library.token_to_id(token) is not None
    }
    return PreTrainedTokenizerFast(tokenizer_object=library, truncation_side=spec.truncation_side, **special)


def _rows_of_texts(tokenizer: Any, example: Example, limit: int | None) -> list[Encoded]:
    """One row: the text, or the pair of texts."""
    row = tokenizer(
        *(texts[0] for texts in example.values()),
        truncation=limit is not None,
        max_length=limit,
        padding=False,
        return_token_type_ids=True,
        return_attention_mask=False,
    )
    return [{"input_ids": list(row["input_ids"]), "token_type_ids": list(row["token_type_ids"])}]


def _run_rows(
    runner: Any, source: Source, rows: Sequence[Encoded], settings: TextSettings
) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any]]:
    """(outputs, mask) of the original model on these rows, padded on the right."""
    width = settings.pad_to or max(1, *(len(row["input_ids"]) for row in rows))
    tensors = {
        "input_ids": np.full((len(rows), width), settings.pad_id, dtype=np.int64),
        "attention_mask": np.zeros((len(rows), width), dtype=np.int64),
        "token_type_ids": np.zeros((len(rows), width), dtype=np.int64),
        "position_ids": np.zeros((len(rows), width), dtype=np.int64),
    }
    for number, row in enumerate(rows):
        length = len(row["input_ids"])
        tensors["input_ids"][number, :length] = row["input_ids"]
        tensors["token_type_ids"][number, :length] = row["token_type_ids"]
        tensors["attention_mask"][number, :length] = 1
        tensors["position_ids"][number] = _positions(tensors["input_ids"][number], length, settings)
    feeds = {spec.name: tensors[spec.name].astype(spec.dtype.numpy) for spec in source.signature.inputs}
    try:
        values = runner.run(None, feeds)
    except Exception as error:
        raise TrbError(
            Exit.GOLDEN_FAILED,
            f"the original model fails on {width} tokens: {_first_line(error)}",
            where=str(source.path),
            remedy="if the text is longer than the model can take, set --max-length; "
            "else repair the model, or use --no-golden",
        ) from None
    outputs = dict(zip((spec.name for spec in source.signature.outputs), values, strict=True))
    return {"input_ids": tensors["input_ids"], **outputs}, tensors["attention_mask"]


def _positions(ids: npt.NDArray[Any], length: int, settings: TextSettings) -> npt.NDArray[Any]:
    """Of one padded row; from the pad id by transformers' create_position_ids_from_input_ids."""
    if settings.positions_from_pad:
        real = ids != settings.pad_id
        return np.where(real, np.cumsum(real) + settings.pad_id, settings.pad_id)
    return np.where(np.arange(len(ids)) < length, np.arange(len(ids)), 0)


def _outputs(task: TaskPlan, answer: Mapping[str, npt.NDArray[Any]]) -> tuple[CaseTensor, ...]:
    """The answer as case tensors. A label that wins by less than float noise proves nothing: left out."""
    tied = False
    if len(task.labels) > 1 and "label" in answer:
        second, first = np.sort(answer["scores"][0])[-2:]
        tied = bool(first - second < 10 * ABSOLUTE)
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


def tolerance(recorded: Sequence[Case], drift: float) -> Tolerance:
    """Float noise of another kernel or batch; twice the original's own drift where that is larger."""
    tensors = [tensor for case in recorded for tensor in case.outputs if tensor.datatype in FLOATS]
    largest = max((abs(v) for t in tensors for v in t.data if np.isfinite(v)), default=0.0)
    half = any(tensor.datatype == "FP16" for tensor in tensors)
    alone = _round_up((HALF if half else ABSOLUTE) * max(1.0, float(largest)))
    if 2 * drift <= alone:
        return Tolerance(alone=alone, batched=alone, reason="float noise between kernels and batch sizes")
    return Tolerance(
        alone=alone,
        batched=_round_up(2 * drift),
        reason=f"the original model's own answers move by {drift:.2g} with their neighbours in a batch",
    )


def _round_up(value: float) -> float:
    """To two significant digits, so that a rebuild writes the same bytes."""
    digits = 1 - int(np.floor(np.log10(value)))
    # 3e-4 * 10**5 is 30.000000000000004, which must not become 31.
    scaled = np.ceil(round(value * 10.0**digits, 6))
    return float(round(scaled / 10.0**digits, max(digits, 0)))


def tensor(runner: Any, source: Source, endpoint: str, *, batching: bool) -> Recorded:
    """Golden cases of any other model, from generated inputs; also tries two rows in one run."""
    failure = ""
    for size in FREE_SIZES:
        try:
            inputs = [_generated(source.signature.inputs, size, seed) for seed in (1, 2)]
            answers = [_run(runner, source, feeds) for feeds in inputs]
        except Exception as error:
            failure = failure or _first_line(error)
            continue
        recorded = tuple(
            _tensor_case(source, number, feeds, answers[number - 1]) for number, feeds in enumerate(inputs, 1)
        )
        problem, drift = _rows(runner, source, inputs, recorded) if batching else ("", 0.0)
        file = CaseFile(
            endpoint=endpoint,
            recorded_with=_recorded_with(source),
            tolerance=tolerance(recorded, drift),
            cases=tuple(_as_served(case, batching=batching and not problem) for case in recorded),
        )
        return Recorded(file=file, batchable=batching and not problem, note=problem)
    note = (
        f"no golden cases: the model refuses generated inputs ({failure}); trb smoke cannot prove its answers"
    )
    return Recorded(file=None, batchable=batching, note=note)


def _generated(specs: Sequence[TensorSpec], size: int, seed: int) -> dict[str, CaseTensor]:
    """Patterned inputs of one row: open first axes 1, other open axes ``size``."""
    tensors = {}
    for position, spec in enumerate(specs):
        shape = tuple(
            dim if isinstance(dim, int) else 1 if axis == 0 else size
            for axis, dim in enumerate(spec.shape or ())
        )
        small = int(np.prod(shape)) <= cases.LARGE // 16
        wire = spec.dtype.wire
        whole = CaseTensor(name=spec.name, datatype=wire, shape=shape, pattern=1000 * seed + position)
        if small and wire != "FP16":
            values = whole.array().reshape(-1).tolist()
            data = tuple(value.decode() if isinstance(value, bytes) else value for value in values)
            whole = CaseTensor(name=spec.name, datatype=wire, shape=shape, data=data)
        tensors[spec.name] = whole
    return tensors


def _run(runner: Any, source: Source, feeds: Mapping[str, CaseTensor]) -> dict[str, npt.NDArray[Any]]:
    arrays = {name: _feed(tensor) for name, tensor in feeds.items()}
    values = runner.run(None, arrays)
    return {
        spec.name: np.asarray(value) for spec, value in zip(source.signature.outputs, values, strict=True)
    }


def _feed(tensor: CaseTensor) -> npt.NDArray[Any]:
    array = tensor.array()
    if tensor.datatype != "BYTES":
        return array
    return np.array([item.decode() for item in array.reshape(-1)], dtype=object).reshape(array.shape)


def _tensor_case(
    source: Source, number: int, feeds: Mapping[str, CaseTensor], answer: Mapping[str, npt.NDArray[Any]]
) -> Case:
    outputs = tuple(
        cases.record(spec.name, spec.dtype.wire, answer[spec.name]) for spec in source.signature.outputs
    )
    return Case(name=f"generated_{number}", inputs=tuple(feeds.values()), outputs=outputs)


def _as_served(case: Case, *, batching: bool) -> Case:
    """With the shapes that the endpoint states: Triton has no scalars, nor rows without a size."""

    def shaped(tensor: CaseTensor) -> CaseTensor:
        if not tensor.shape:
            return replace(tensor, shape=(1,))
        return replace(tensor, shape=(*tensor.shape, 1)) if batching and len(tensor.shape) == 1 else tensor

    return replace(case, inputs=tuple(map(shaped, case.inputs)), outputs=tuple(map(shaped, case.outputs)))


def _rows(
    runner: Any, source: Source, inputs: Sequence[Mapping[str, CaseTensor]], recorded: Sequence[Case]
) -> tuple[str, float]:
    """Run both cases as one batch: (why the first axis is no batch axis, else "", drift).

    An open first axis does not prove a batch: detectors put the number of boxes there.
    """
    stacked = {name: np.concatenate([_feed(feeds[name]) for feeds in inputs]) for name in inputs[0]}
    try:
        values = runner.run(None, stacked)
    except Exception as error:
        return f"it fails on a batch of two ({_first_line(error)})", 0.0
    drift = 0.0
    for spec, value in zip(source.signature.outputs, values, strict=True):
        if value.shape[:1] != (len(inputs),):
            given = value.shape[0] if value.ndim else "no"
            return f"output '{spec.name}' gives {given} rows for a batch of two", 0.0
        for row, case in enumerate(recorded):
            expected = next(tensor for tensor in case.outputs if tensor.name == spec.name)
            moved = cases.difference(expected, value[row : row + 1])
            if moved > DEPENDENT * _scale(expected):
                return f"rows of output '{spec.name}' depend on each other", 0.0
            drift = max(drift, moved)
    return "", drift


def _first_line(error: BaseException) -> str:
    text = _ONNXRUNTIME.sub("", str(error).strip())
    return (text.splitlines() or [type(error).__name__])[0][:300]
