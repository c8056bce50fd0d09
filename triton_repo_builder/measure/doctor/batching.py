"""Why does it not batch? Settings that keep requests apart, and what the statistics show."""

from __future__ import annotations

from collections.abc import Iterator

from triton_repo_builder.measure.doctor import python_code, repairs
from triton_repo_builder.measure.doctor.cause import Cause, Repair
from triton_repo_builder.measure.doctor.facts import ENOUGH, Facts, ModelFacts
from triton_repo_builder.model.read.signature import ModelSignature

QUESTION = "batching"
CHECKED = frozenset(
    {"preferred-size", "queue-delay-long", "queue-delay-unused", "onnx-batch-axis", "onnx-ragged"}
)
"""Findings of ``trb check`` that answer this question."""
LONG = 5
"""Multiple of the time of an execution from which waiting for others does not pay."""
IDLE = 0.1
"""Share of a request's time in the queue below which nothing waits."""


def causes(facts: Facts) -> Iterator[Cause]:
    """Causes in the models that have no error; if asked, also in those with errors that join no requests."""
    for model in facts.models:
        if model.ensemble or model.config.has("sequence_batching") or not _is_judged(facts, model):
            continue
        causes_of_settings = list(_of_model(facts, model))
        yield from causes_of_settings
        if not causes_of_settings:
            yield from _by_statistics(facts, model)


def unknown(facts: Facts) -> Iterator[str]:
    """Facts that are missing for this question."""
    steps = [model for model in facts.models if not model.ensemble]
    if broken := [model.name for model in steps if not _is_judged(facts, model)]:
        yield f"the settings of {', '.join(broken)}, not ready: repair that first, and ask again"
    unjoined = [model.name for model in steps if model.name not in facts.broken and _may_join(model)]
    if unjoined and not facts.is_asked(QUESTION):
        yield f"whether {', '.join(unjoined)} should batch: max_batch_size is 0; ask with --question batching"
    if facts.snapshot is None:
        yield "rows per execution: name the server's URL, or measure with --bench"
        return
    quiet = [model.name for model in facts.models if not model.ensemble and model.ratio is None]
    if quiet:
        yield (
            f"rows per execution of {', '.join(quiet)}: fewer than {ENOUGH} executions yet; measure with "
            "--bench"
        )


def _is_judged(facts: Facts, model: ModelFacts) -> bool:
    """Whether the settings count: of a model with an error only that nothing joins, for who asks."""
    return model.name not in facts.broken or (facts.is_asked(QUESTION) and model.rows == 0)


def _may_join(model: ModelFacts) -> bool:
    """Whether no requests join, though the graph could have several rows."""
    signature = repairs.signature_of(model.context) if model.context and not model.rows else None
    return isinstance(signature, ModelSignature) and signature.batch.possible


def _of_model(facts: Facts, model: ModelFacts) -> Iterator[Cause]:
    batching = model.config.dynamic_batching
    suspected = facts.is_asked(QUESTION) or (model.ratio is not None and not model.merges)
    if model.rows == 0:
        if (suspected and not model.config.decoupled) or batching is not None:
            yield from _no_rows(model)
    elif model.rows == 1:
        if suspected:
            yield _cause(
                model,
                "batching-one",
                "max_batch_size is 1: one row is all that an execution may hold",
                "max_batch_size",
                remedy="raise max_batch_size, if rows do not change each other's answers",
            )
    elif batching is None:
        if suspected or _beside_one_that_batches(facts, model):
            message = "without dynamic_batching each request runs alone, also if more wait"
            repair = repairs.config(model.name, "dynamic_batching added", _batched)
            yield _cause(
                model,
                "batching-off",
                message,
                "max_batch_size",
                remedy="add dynamic_batching { }",
                repairs=(repair,),
            )
    elif suspected or model.merges:
        yield from _preferred(model)
        if suspected:
            yield from _lengths(model)


def _batched(text: str) -> str:
    return repairs.put("dynamic_batching", "dynamic_batching { }")(text)


def _no_rows(model: ModelFacts) -> Iterator[Cause]:
    """Without ``max_batch_size`` requests stay apart; a graph that can batch is a setting away from it."""
    signature = repairs.signature_of(model.context) if model.context else None
    if isinstance(signature, ModelSignature) and signature.batch.possible:
        rows = repairs.DEFAULT_ROWS
        edits = (*repairs.tensors(signature, model.config, rows), _batched)
        yield _cause(
            model,
            "batching-no-rows",
            "max_batch_size is 0 or missing, so that the server joins no requests, though the graph has an "
            "open "
            f"first axis on every tensor ({', '.join(map(str, (*signature.inputs, *signature.outputs)))})",
            "max_batch_size" if model.config.max_batch_size else "dynamic_batching",
            remedy=f"set max_batch_size: {rows}, take the first axis out of dims, and add dynamic_batching "
            f"{{ }}",
            repairs=(
                repairs.config(
                    model.name,
                    f"max_batch_size: {rows}, dims without the batch axis, dynamic_batching",
                    *edits,
                ),
            ),
        )
    elif isinstance(signature, ModelSignature):
        yield _cause(
            model,
            "batching-fixed-graph",
            f"the graph cannot batch: {signature.batch.reason}",
            "max_batch_size",
            remedy="export it with a dynamic first axis on every input and output",
        )
    elif model.config.dynamic_batching is not None:
        yield _cause(
            model,
            "batching-no-rows",
            "dynamic_batching does nothing while max_batch_size is 0",
            "dynamic_batching",
            remedy="set max_batch_size, and take the batch axis out of dims",
        )


def _preferred(model: ModelFacts) -> Iterator[Cause]:
    batching = model.config.dynamic_batching or {}
    sizes = batching.get("preferred_batch_size", [])
    if not sizes or (1 not in sizes and max(sizes) >= model.rows):
        return
    most = max(sizes)
    why = (
        "preferred_batch_size has 1, which sends each request at once"
        if 1 in sizes
        else (
            f"a batch is sent at {most} rows, the largest preferred_batch_size, of max_batch_size "
            f"{model.rows}"
        )
    )
    evidence = tuple(
        f"{count} executions of {rows} rows" for rows, count in sorted(model.counters.batches.items())[:6]
    )
    repair = repairs.config(
        model.name,
        "preferred_batch_size removed",
        repairs.without_inner("dynamic_batching", "preferred_batch_size"),
    )
    yield _cause(
        model,
        "batching-preferred",
        why,
        "dynamic_batching",
        "preferred_batch_size",
        evidence=evidence,
        remedy="drop preferred_batch_size: few engines gain from it (TensorRT profiles for exact sizes)",
        repairs=(repair,),
    )


def _lengths(model: ModelFacts) -> Iterator[Cause]:
    """Inputs whose shapes must be equal in a batch."""
    places = [
        (index, tensor)
        for index, tensor in enumerate(model.config.inputs)
        if -1 in tensor.dims and not tensor.allow_ragged_batch
    ]
    if not places:
        return
    names = ", ".join(f"{tensor.name} {list(tensor.dims)}" for _, tensor in places)
    message = (
        f"requests join only if their shapes are equal, and the size of {names} varies; the first request of "
        "another shape ends the batch. Triton does not pad"
    )
    fixes: tuple[Repair, ...] = ()
    remedy = (
        "send equal shapes (pad on the client), or let trb build make it: trb build --model FOLDER, with the "
        "ONNX file and its tokenizer.json, takes texts and packs rows of any length"
    )
    if model.backend == "python":
        remedy = "write allow_ragged_batch: true on these inputs: execute() then gets requests of any shape"
        if model.context is None:
            remedy += ", if model.py does not join them to one tensor"
        elif not python_code.joins(model.context):
            edits = [repairs.flag("input", tensor.name, "allow_ragged_batch: true") for _, tensor in places]
            fixes = (repairs.config(model.name, f"allow_ragged_batch on {names}", *edits),)
        else:
            remedy += "; model.py joins requests to one tensor and must pad them first"
    yield _cause(
        model, "batching-lengths", message, "input", places[0][0], "dims", remedy=remedy, repairs=fixes
    )


def _by_statistics(facts: Facts, model: ModelFacts) -> Iterator[Cause]:
    """Nothing in the settings: then the load."""
    if model.ratio is None or model.rows < 2:
        return
    total, queue = model.mean_ms("success"), model.mean_ms("queue")
    delay = (model.config.dynamic_batching or {}).get("max_queue_delay_microseconds", 0) / 1000
    evidence = (f"mean time of a request {total:.2f} ms, of it {queue:.2f} ms in the queue",)
    if model.merges and not (delay and queue >= LONG * (total - queue)):
        return
    if model.merges:
        yield _cause(
            model,
            "queue-delay-long",
            f"each request waits up to {delay:g} ms for others, far longer than the model computes",
            "dynamic_batching",
            "max_queue_delay_microseconds",
            evidence=evidence,
            remedy="drop max_queue_delay_microseconds, or make it shorter than an execution",
            repairs=(_without_delay(model),),
        )
    elif delay and queue >= 0.5 * delay:
        yield _cause(
            model,
            "batching-no-company",
            f"no second request came within the {delay:g} ms that each one waits: clients send one at a time",
            "dynamic_batching",
            "max_queue_delay_microseconds",
            evidence=evidence,
            remedy="send requests at the same time (threads, async, several clients); drop the delay, which "
            "each lone request pays",
            repairs=(_without_delay(model),),
        )
    elif facts.is_asked(QUESTION) and total and queue < IDLE * total:  # else a light load is no fault
        yield _cause(
            model,
            "batching-no-company",
            "no request waited for another: clients send one at a time",
            "dynamic_batching",
            evidence=evidence,
            remedy="send requests at the same time (threads, async, several clients)",
        )


def _without_delay(model: ModelFacts) -> Repair:
    return repairs.config(
        model.name,
        "max_queue_delay_microseconds removed",
        repairs.without_inner("dynamic_batching", "max_queue_delay_microseconds"),
    )


def _beside_one_that_batches(facts: Facts, model: ModelFacts) -> bool:
    """Whether another step of its ensembles batches, so that this one holds it up."""
    for each in facts.models:
        if model.name in (steps := [step.model_name for step in each.config.steps]):
            others = [facts.model(name) for name in steps if name != model.name]
            if any(
                other and other.rows > 1 and other.config.dynamic_batching is not None for other in others
            ):
                return True
    return False


def _cause(
    model: ModelFacts,
    code: str,
    message: str,
    *path: str | int,
    remedy: str,
    evidence: tuple[str, ...] = (),
    repairs: tuple[Repair, ...] = (),
) -> Cause:
    counted = (model.ratio_text,) if model.counters.executions else ()
    return Cause(
        questions=(QUESTION,),
        code=code,
        model=model.name,
        where=model.at(*path),
        message=message,
        evidence=counted + evidence,
        remedy=remedy,
        repairs=repairs,
    )
