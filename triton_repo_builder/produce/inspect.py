"""``trb inspect``: facts about a model before a build."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.model.graph import reader, soundness
from triton_repo_builder.model.read import slow_tokenizer, tokenizer
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.model.read.source import Source, SourceOverrides
from triton_repo_builder.produce import limits


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The source and its derived facts; ``problem`` is the error that a build would raise."""

    source: Source
    task: str
    task_reason: str
    releases: tuple[str, ...]
    """Releases that load the unchanged file."""
    after_lowering: tuple[str, ...]
    """Releases that load the output of ``trb build``, which lowers the IR version if needed."""
    fault: str
    """The newest release's error for a graph that no release loads, unless the opset is the reason."""
    max_length: int | None
    max_length_from: str
    problem: TrbError | None


def inspect(path: Path, named_files: SourceOverrides = reader.NOTHING) -> Inspection:
    """Read the model's skeleton and the files beside it; no weight is touched. Raises ``TrbError``."""
    src = reader.read_source(path, named_files)
    signature = src.signature
    problem: TrbError | None = None
    task, reason = "tensor", ""
    try:
        limits.check_libraries(src, releases.default())
        module, reason = tasks.choose(src, None)
        task = module.NAME
        tasks.tensor.check_types(src)
        slow = src.tokenizer is not None and src.tokenizer.name in slow_tokenizer.VOCABULARIES
        if slow and module.KIND in tasks.TOKENIZED:
            _ = src.tokenizer_spec  # raises for one that cannot be converted
        module.plan(src, BuildOptions(model=path))
    except TrbError as error:
        problem = error
    able = releases.can_load(0, signature.opset)
    sound = soundness.sound_in(src.skeleton, able) if able else ()
    fault = next(soundness.faults(src.skeleton, releases.newest()), "") if able and not sound else ""
    length, length_from = (
        tokenizer.max_length(src.tokenizer.parent, src.sentence) if src.tokenizer else (None, "")
    )
    if src.skeleton.flat and src.tokenizer:  # rows of tokens are how it is served
        length, length_from = src.tokenizer_spec.max_length, src.tokenizer_spec.max_length_from
        src = reader.as_exported(src)
    ids = src.signature.input("input_ids")
    columns = ids.dims[1] if ids is not None and len(ids.dims) == 2 else -1
    if src.tokenizer and 0 < columns <= (length or columns):
        length, length_from = columns, "the graph's second axis"
    return Inspection(
        source=src,
        task=task,
        task_reason=reason,
        releases=tuple(
            name for name in releases.can_load(signature.ir_version, signature.opset) if name in sound
        ),
        after_lowering=sound,
        fault=fault,
        max_length=length,
        max_length_from=length_from,
        problem=problem,
    )


def as_json(inspection: Inspection) -> dict[str, Any]:
    """The facts as plain values; the paths are as the user gave them."""
    signature = inspection.source.signature
    problem = inspection.problem
    return {
        "model": str(inspection.source.path),
        "inputs": [_tensor(spec) for spec in signature.inputs],
        "outputs": [_tensor(spec) for spec in signature.outputs],
        "batchable": signature.batch.possible,
        "batching_prevented_by": signature.batch.tensor or None,
        "batching_reason": signature.batch.reason or None,
        "opset": signature.opset,
        "opsets": dict(signature.opsets),
        "ir_version": signature.ir_version,
        "producer": signature.producer or None,
        "bytes": signature.bytes,
        "external_data": [{"file": file.location, "bytes": file.bytes} for file in signature.external],
        "operators": sorted(signature.operators),
        "tokenizer": str(inspection.source.tokenizer) if inspection.source.tokenizer else None,
        "preprocessor": str(inspection.source.preprocessor) if inspection.source.preprocessor else None,
        "max_length": inspection.max_length,
        "vocabulary": signature.vocabulary,
        "task": inspection.task,
        "task_note": inspection.task_reason or None,
        "releases": list(inspection.releases),
        "releases_after_build": list(inspection.after_lowering),
        "problem": None
        if problem is None
        else {
            "code": problem.code.kind,
            "message": problem.message,
            "where": problem.where,
            "remedy": problem.remedy,
        },
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "type": spec.dtype.name if spec.kind == "tensor" else spec.kind,
        "triton_type": spec.dtype.config or None,
        "shape": None if spec.shape is None else list(spec.shape),
    }
