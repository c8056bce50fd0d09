"""Records golden cases of a model that is served as plain tensors, from generated inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.golden import input_sizes, original, tolerance
from triton_repo_builder.endpoint.golden.input_sizes import AxisSizes
from triton_repo_builder.endpoint.golden.original import Recording
from triton_repo_builder.model.graph import constants, isolated
from triton_repo_builder.model.read import mlmodel
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository import cases
from triton_repo_builder.repository.cases import Case, CaseFile, CaseTensor

SEEDS = (1, 1_640_531)
"""Seeds of the cases; UNLIKE: seeds of further rows of a batch. All are far apart. Rows that are almost the
same (seeds 1 and 2 differ in the seventh digit), or that the model makes so, do not show that they change
each other."""
UNLIKE = (3_281_777, 5_198_329, 7_368_787, 9_576_893, 11_902_607)
EXAMPLES = 4
"""Most rows of an input example that become cases."""


def record(model: original.OriginalModel, source: Source, endpoint: str, *, batching: bool) -> Recording:
    """Golden cases of any other model, from generated inputs; also tries two rows in one run."""
    if random := original.draws(source):
        note = f"no golden cases: {random}, so no answer can be compared"
        return Recording(cases=None, batchable=False, obstacle=random, notes=(note,))
    failure = ""
    for size in input_sizes.tries(source):
        try:
            inputs = [generated(source.signature.inputs, size, seed) for seed in SEEDS]
            answers = [_run(model, source, feeds) for feeds in inputs]
        except TrbError:
            raise
        except Exception as error:
            failure = failure or original.first_line(error)
            continue
        recorded = tuple(
            _tensor_case(source, f"generated_{number}", feeds, answers[number - 1])
            for number, feeds in enumerate(inputs, 1)
        )
        examples, said = _examples(model, source, batching=batching)
        obstacle = ""
        if batching:
            # All rows are one batch, which is bounded as a row is.
            room = cases.MOST // max(1, sum(math.prod(tensor.shape) for tensor in inputs[0].values()))
            seeds = UNLIKE[: max(0, room - len(SEEDS))]
            others = filter(None, (_other_row(model, source, size, seed) for seed in seeds))
            rows, singly = zip(*zip(inputs, recorded, strict=True), *others, strict=True)
            obstacle = _obstacle(model, source, rows, singly)
        file = CaseFile(
            endpoint=endpoint,
            recorded_with=model.recorded_with(source),
            tolerance=model.tolerance((*recorded, *examples)),
            cases=tuple(
                _as_served(case, batching=batching and not obstacle) for case in (*examples, *recorded)
            ),
        )
        recording = Recording(cases=file, batchable=batching and not obstacle, obstacle=obstacle)
        return recording.noted(said)
    for count in constants.rows(source.skeleton):
        _refuse_if_baked(model, source, count)
    why = f"the model refuses generated inputs ({failure})"
    if names := ", ".join(constant.name for constant in source.skeleton.constants):
        why += f", perhaps for the value of --constant {names}"
    note = f"no golden cases: {why}; trb smoke cannot prove its answers"
    return Recording(cases=None, batchable=batching, compared=False, notes=(note,))


def _examples(
    model: original.OriginalModel, source: Source, *, batching: bool
) -> tuple[tuple[Case, ...], str]:
    """Cases of MLflow's input example, one for each row if rows are batched; and a note."""
    folder = source.path.parent
    arrays = mlmodel.example(folder, source.signature.inputs)
    if not arrays:
        return (), ""
    rows = min((len(array) for array in arrays.values() if array.ndim), default=1) if batching else 1
    examples = []
    for row in range(min(rows, EXAMPLES)):
        feeds = {
            spec.name: cases.record(
                spec.name,
                spec.dtype.wire,
                arrays[spec.name][row : row + 1] if batching else arrays[spec.name],
            )
            for spec in source.signature.inputs
        }
        if any(tensor.indices is not None for tensor in feeds.values()):
            return (), "its input example is too large for a golden case"
        try:
            examples.append(
                _tensor_case(source, f"input_example_{row + 1}", feeds, _run(model, source, feeds))
            )
        except isolated.Failed as error:
            return (), f"the model refuses its own input example: {original.first_line(error)}"
    return tuple(examples), f"its input example gave {len(examples)} golden cases"


def _refuse_if_baked(model: original.OriginalModel, source: Source, rows: int) -> None:
    """``TrbError`` if the model takes as many rows, and no single one."""
    for size in input_sizes.tries(source):
        try:
            _run(model, source, generated(source.signature.inputs, replace(size, rows=rows), 1))
        except TrbError:
            raise
        except Exception:
            continue
        raise TrbError(
            Code.NOT_BATCHABLE,
            f"the graph runs with {rows} rows only, though it calls its first axis open: a batch of {rows} "
            "was baked in by the export",
            where=str(source.path),
            remedy="export it with a batch that is open in the model's code, too (x.shape[0] in place of a "
            "number), or with the first axis fixed",
        )


def generated(specs: Sequence[TensorSpec], sizes: AxisSizes, seed: int) -> dict[str, CaseTensor]:
    """Patterned inputs of these sizes. Raises ValueError if they have more than ``cases.MOST`` elements."""
    tensors, room = {}, cases.MOST
    for position, spec in enumerate(specs):
        shape = sizes.shape(spec)
        room -= math.prod(shape)
        if room < 0:
            dims = " x ".join(map(str, shape))
            raise ValueError(
                f"input '{spec.name}' of {dims:.60} is too large: {cases.MOST:,} numbers are made"
            )
        small = math.prod(shape) <= cases.LARGE // 16
        wire = spec.dtype.wire
        whole = CaseTensor(name=spec.name, datatype=wire, shape=shape, pattern=1000 * seed + position)
        if small and wire != "FP16":
            values = whole.array().reshape(-1).tolist()
            data = tuple(value.decode() if isinstance(value, bytes) else value for value in values)
            whole = CaseTensor(name=spec.name, datatype=wire, shape=shape, data=data)
        tensors[spec.name] = whole
    return tensors


def _other_row(
    model: original.OriginalModel, source: Source, size: AxisSizes, seed: int
) -> tuple[Mapping[str, CaseTensor], Case] | None:
    """A row unlike the cases' rows, with its answer; None if the model refuses it."""
    feeds = generated(source.signature.inputs, size, seed)
    try:
        return feeds, _tensor_case(source, f"generated_{seed}", feeds, _run(model, source, feeds))
    except TrbError:
        raise
    except Exception:
        return None


def _run(
    model: original.OriginalModel, source: Source, feeds: Mapping[str, CaseTensor]
) -> dict[str, npt.NDArray[Any]]:
    arrays = {name: feed(tensor) for name, tensor in feeds.items()}
    values = model.run(None, arrays)
    return {
        spec.name: np.asarray(value) for spec, value in zip(source.signature.outputs, values, strict=True)
    }


def feed(tensor: CaseTensor) -> npt.NDArray[Any]:
    """The tensor as ONNX Runtime takes it: texts as objects."""
    array = tensor.array()
    if tensor.datatype != "BYTES":
        return array
    return np.array([item.decode() for item in array.reshape(-1)], dtype=object).reshape(array.shape)


def _tensor_case(
    source: Source, name: str, feeds: Mapping[str, CaseTensor], answer: Mapping[str, npt.NDArray[Any]]
) -> Case:
    outputs = tuple(
        cases.record(spec.name, spec.dtype.wire, answer[spec.name]) for spec in source.signature.outputs
    )
    return Case(name=name, inputs=tuple(feeds.values()), outputs=outputs)


def _as_served(case: Case, *, batching: bool) -> Case:
    """Shapes as the endpoint states them: Triton has neither scalars nor rows without a size."""

    def shaped(tensor: CaseTensor) -> CaseTensor:
        if not tensor.shape:
            return replace(tensor, shape=(1,))
        return replace(tensor, shape=(*tensor.shape, 1)) if batching and len(tensor.shape) == 1 else tensor

    return replace(case, inputs=tuple(map(shaped, case.inputs)), outputs=tuple(map(shaped, case.outputs)))


def _obstacle(
    model: original.OriginalModel,
    source: Source,
    inputs: Sequence[Mapping[str, CaseTensor]],
    recorded: Sequence[Case],
) -> str:
    """Why rows must not be one batch; empty if their answers are the same in one.

    An open first axis does not prove a batch: detectors put the number of boxes there.
    """
    stacked = {name: np.concatenate([feed(feeds[name]) for feeds in inputs]) for name in inputs[0]}
    try:
        values = model.run(None, stacked)
    except TrbError:
        raise
    except Exception as error:
        return f"it fails on a batch of {len(inputs)} ({original.first_line(error)})"
    noise = tolerance.tolerance(recorded, model.own_noise).batched
    for spec, value in zip(source.signature.outputs, values, strict=True):
        if value.shape[:1] != (len(inputs),):
            count = value.shape[0] if value.ndim else "no"
            return f"output '{spec.name}' gives {count} rows for a batch of {len(inputs)}"
        for row, case in enumerate(recorded):
            expected = next(tensor for tensor in case.outputs if tensor.name == spec.name)
            if cases.difference(expected, value[row : row + 1]) > noise:
                return f"rows of output '{spec.name}' depend on each other"
    return ""
