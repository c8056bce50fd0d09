"""Why is the GPU idle? Models that are kept off it, and steps that it waits for."""

from __future__ import annotations

from collections.abc import Iterator

from triton_repo_builder.measure.doctor import repairs
from triton_repo_builder.measure.doctor.cause import Cause
from triton_repo_builder.measure.doctor.facts import ENOUGH, Facts, ModelFacts

QUESTION = "gpu"
CHECKED = frozenset({"instance-gpus"})
"""Findings of ``trb check`` that answer this question."""
COMPUTES = frozenset({"onnxruntime", "tensorrt", "pytorch"})
HALF = 0.5
"""Share of an ensemble's time from which on one step's queue holds it up."""


def causes(facts: Facts) -> Iterator[Cause]:
    """Kinds of instances, then the queues of ensembles."""
    for model in facts.models:
        if model.name not in facts.broken and model.backend in COMPUTES:
            yield from _kind(facts, model)
    for model in facts.models:
        if model.ensemble and model.name not in facts.broken:
            yield from _waiting(facts, model)


def unknown(facts: Facts) -> Iterator[str]:
    """Facts that are missing for this question."""
    used = facts.snapshot.page.total("nv_gpu_utilization") if facts.snapshot else None
    if facts.gpus == 0:
        yield "there is no GPU on this machine, so that none can be idle"
    elif used is None:
        yield "the GPU's utilization: the metrics page has no nv_gpu_utilization, or no URL was named"


def _kind(facts: Facts, model: ModelFacts) -> Iterator[Cause]:
    kinds = {group.kind for group in model.config.instance_groups}
    if kinds == {"KIND_CPU"} and facts.gpus:
        count = sum(max(group.count, 1) for group in model.config.instance_groups)
        yield Cause(
            questions=(QUESTION,),
            code="gpu-kind-cpu",
            model=model.name,
            where=model.at("instance_group", 0, "kind"),
            message=f"instance_group says KIND_CPU: the model never runs on the {_gpus(facts.gpus)} of the "
            "server",
            remedy="write kind: KIND_GPU (in a build: trb build --device gpu)",
            repairs=(
                repairs.config(
                    model.name,
                    "kind: KIND_GPU",
                    repairs.put("instance_group", repairs.instances(count, "KIND_GPU")),
                ),
            ),
        )


def _gpus(count: int) -> str:
    return "GPU" if count == 1 else f"{count} GPUs"


def _waiting(facts: Facts, ensemble: ModelFacts) -> Iterator[Cause]:
    """A Python step whose queue takes most of the ensemble's time, with one request at a time."""
    steps = [step for name in ensemble.config.steps if (step := facts.model(name.model_name))]
    computing = [step for step in steps if step.backend in COMPUTES]
    total = ensemble.mean_ms("success")
    for step in steps:
        if step.backend != "python" or not computing:
            continue
        queue = step.mean_ms("queue")
        seen = total > 0 and step.counters.executions >= ENOUGH and queue >= HALF * total
        count = sum(max(group.count, 1) for group in step.config.instance_groups) or 1
        alone = step.rows > 1 and step.config.dynamic_batching is None
        if not seen and not (facts.is_asked(QUESTION) and alone and count == 1):
            continue
        edits = [repairs.put("instance_group", repairs.instances(count + 1))]
        words = f"{count + 1} instances"
        if alone:
            edits.append(repairs.put("dynamic_batching", "dynamic_batching { }"))
            words = f"dynamic_batching and {words}"
        times = [
            f"{each.name}: {each.mean_ms('queue'):.1f} ms in its queue, "
            f"{each.mean_ms('compute_infer'):.1f} ms "
            "of work"
            for each in steps
            if each.counters.executions
        ]
        yield Cause(
            questions=(QUESTION, "batching"),
            code="gpu-waits-for-step",
            model=step.name,
            where=step.at("instance_group"),
            message=f"{computing[-1].name} waits for {step.name}, which has {count} process"
            + ("es" if count > 1 else "")
            + (" and takes one request at a time" if alone else ""),
            evidence=tuple([f"a request takes {total:.1f} ms", *times] if times else ()),
            remedy="let it take many requests at once (dynamic_batching { }), give it more instances, or "
            "move this work to the client",
            repairs=(repairs.config(step.name, words, *edits),),
        )
