"""Why do answers differ? Rows that change each other, numbers of 16 bits, inputs declared twice."""

from __future__ import annotations

from collections.abc import Iterator

from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.measure.doctor import repairs
from triton_repo_builder.measure.doctor.cause import Cause
from triton_repo_builder.measure.doctor.facts import ACCELERATORS, Facts, ModelFacts
from triton_repo_builder.repository import provenance

QUESTION = "answers"
CHECKED = frozenset({"tensor-duplicate", "ragged-alone", "manifest-changed", "manifest-content"})
"""Findings of ``trb check`` that answer this question."""
HALVES = ("FP16", "BF16", "INT8")
MOVED = 1e-3
"""Difference of a row, relative to the largest number, that rounding does not explain."""


def causes(facts: Facts) -> Iterator[Cause]:
    """Causes in the models that have no error, and vectors that differ from those expected."""
    if facts.expected and not facts.expected.same:
        yield Cause(
            questions=(QUESTION,),
            code="answers-expected",
            model=facts.expected.endpoint,
            where=facts.expected.endpoint,
            message=facts.expected.message,
            evidence=facts.expected.evidence,
            remedy=facts.expected.remedy,
        )
    explained: set[str] = set()
    for model in facts.models:
        if model.name in facts.broken or model.ensemble:
            continue
        for cause in (*_mixing(model), *_precision(model)):
            explained.add(model.name)
            yield cause
    for name, output, worst, _ in facts.beside:
        if worst > MOVED and name not in explained:
            seen = facts.model(name)
            yield Cause(
                questions=(QUESTION,),
                code="answers-neighbour",
                model=name,
                where=seen.at() if seen else name,
                message=f"the same row has another {output} beside other rows than alone",
                evidence=(f"difference {worst:.3g} of the largest number",),
                remedy="let padding and neighbours be masked in the graph, or set max_batch_size: 1",
            )


def measured(facts: Facts) -> Iterator[str]:
    """Differences that were measured on a server, with what is allowed."""
    if facts.expected and facts.expected.same:
        yield f"{facts.expected.endpoint}: {facts.expected.summary}"
    for name, output, worst, rows in facts.beside:
        yield (
            f"{name}: {rows} rows, each alone and in a batch with the others: largest difference of {output} "
            f"{worst:.2g} of its largest number (allowed {MOVED:g})"
        )


def unknown(facts: Facts) -> Iterator[str]:
    """Facts that are missing for this question."""
    if not facts.beside:
        yield "whether a row answers beside others as alone: measure with --bench and the server's URL"
    if not facts.expected:
        yield "whether preprocessing equals the original's: 'trb smoke' compares with recorded answers"


def _mixing(model: ModelFacts) -> Iterator[Cause]:
    """A graph whose rows change each other, found by running it."""
    context = model.context
    if context is None or context.backend != "onnxruntime" or model.rows < 2:
        return
    ragged = any(tensor.allow_ragged_batch for tensor in model.config.inputs)
    if ragged or model.config.has("batch_input") or provenance.written(model.config):
        return  # rows of any length are not tried; a build has proven its own
    file = repairs.onnx_file(context)
    if file is None:
        return
    from triton_repo_builder.model.graph import mend

    try:
        mixed = mend.mixing(file)
    except TrbError:
        return
    if mixed is None:
        return
    name, worst = mixed
    rows = (
        "has another number of rows"
        if worst == float("inf")
        else f"moves by {worst:.2g} of its largest number"
    )
    yield Cause(
        questions=(QUESTION, "batching"),
        code="answers-rows-mix",
        model=model.name,
        where=str(file),
        message=f"rows of a batch change each other: output '{name}' {rows} if a second row is beside the "
        "first",
        evidence=("the file in ONNX Runtime, two unlike rows together and alone",),
        remedy="set max_batch_size: 1 without dynamic_batching, or export a graph whose first axis is the "
        "batch",
        repairs=(
            repairs.config(
                model.name,
                "max_batch_size: 1, without dynamic_batching",
                repairs.put("max_batch_size", "max_batch_size: 1"),
                repairs.without("dynamic_batching"),
            ),
        ),
    )


def _precision(model: ModelFacts) -> Iterator[Cause]:
    mode = str((model.tensorrt or {}).get("precision_mode", ""))
    if mode not in HALVES:
        return
    yield Cause(
        questions=(QUESTION,),
        code="answers-precision",
        model=model.name,
        where=model.at(*ACCELERATORS),
        message=f"TensorRT computes in {mode}, and picks other kernels for other batch sizes",
        remedy="write precision_mode FP32, compare (trb smoke); keep the faster mode only if answers hold",
        repairs=(
            repairs.config(
                model.name,
                f"precision_mode {mode} to FP32",
                repairs.parameter(ACCELERATORS, "precision_mode", "FP32"),
            ),
        ),
    )
