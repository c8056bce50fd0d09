"""Why is the first request slow? Work that is left to it: loading, building an engine, allocating."""

from __future__ import annotations

from collections.abc import Iterator

from triton_repo_builder.measure.doctor import python_code, repairs
from triton_repo_builder.measure.doctor.cause import Cause, Repair
from triton_repo_builder.measure.doctor.facts import ACCELERATORS, Facts, ModelFacts

QUESTION = "first-request"
CHECKED = frozenset(
    {"warmup-inputs", "warmup-shape", "warmup-data", "warmup-type", "warmup-file", "warmup-batch-size"}
)
CACHE = "/var/cache/tensorrt"
TIMES = 5.0
"""A first request this many times slower than a later one is worth a cause."""
LONGER = 200.0
"""Milliseconds by which it must be slower, too: connections and caches are warmed in less."""


def causes(facts: Facts) -> Iterator[Cause]:
    """Causes in the models that have no error."""
    explained: list[str] = []
    for model in facts.models:
        if model.name in facts.broken or model.ensemble:
            continue
        for cause in (*_late(model), *_engine(model)):
            explained.append(model.name)
            yield cause
    for name, first, later in facts.slow_starts:
        if first > max(TIMES * later, later + LONGER) and not {name, *_steps(facts, name)} & {*explained}:
            seen = facts.model(name)
            yield Cause(
                questions=(QUESTION,),
                code="first-slow",
                model=name,
                where=seen.at() if seen else name,
                message="the first request took longer than later ones, and no setting here says why",
                evidence=(f"first request {first:.1f} ms, a later one {later:.1f} ms",),
                remedy="give each step a model_warmup with a usual request",
            )


def unknown(facts: Facts) -> Iterator[str]:
    """Facts that are missing for this question."""
    if not facts.slow_starts:
        yield (
            "how long a first request takes: Triton does not count it apart; measure with --bench on a "
            "fresh server"
        )


def _steps(facts: Facts, name: str) -> list[str]:
    model = facts.model(name)
    return [step.model_name for step in model.config.steps] if model else []


def warmed(model: ModelFacts, about: str = "model_warmup with one sample of zeros") -> Repair:
    """A repair that adds a warm-up sample."""
    statement = repairs.warmup(model.config.inputs)
    return repairs.config(model.name, about, repairs.put("model_warmup", statement))


def _late(model: ModelFacts) -> Iterator[Cause]:
    if model.backend != "python" or model.context is None or model.config.has("model_warmup"):
        return
    if not model.config.inputs or (late := python_code.late(model.context)) is None:
        return
    name, line = late
    yield Cause(
        questions=(QUESTION,),
        code="first-late-load",
        model=model.name,
        where=f"{model.context.file(model.context.selected[-1])}:{line}",
        message=f"execute() makes self.{name} at the first request, and no model_warmup sends one before",
        remedy="load it in initialize(), or add model_warmup, which the server runs before the model is "
        "ready",
        repairs=(warmed(model),),
    )


def _engine(model: ModelFacts) -> Iterator[Cause]:
    """TensorRT builds an engine for each new range of shapes, at the first request with it."""
    parameters = model.tensorrt
    if parameters is None:
        return
    cached = str(parameters.get("trt_engine_cache_enable", "")).lower() in ("1", "true")
    warm = model.config.has("model_warmup")
    if cached and warm:
        return
    missing = [] if cached else ["trt_engine_cache_enable"]
    fixes = []
    if not cached:
        fixes.append(
            repairs.config(
                model.name,
                f"engines are kept in {CACHE}/{model.name}",
                repairs.parameter(ACCELERATORS, "trt_engine_cache_enable", "true"),
                repairs.parameter(ACCELERATORS, "trt_engine_cache_path", f"{CACHE}/{model.name}"),
            )
        )
    if not warm and model.config.inputs:
        missing.append("model_warmup")
        fixes.append(warmed(model))
    yield Cause(
        questions=(QUESTION,),
        code="first-engine",
        model=model.name,
        where=model.at(*ACCELERATORS),
        message="TensorRT builds its engine when the first request of a shape comes, which takes minutes; "
        "without " + " and ".join(missing),
        remedy=f"add {' and '.join(missing)}, mount a volume for the cache, and state "
        "trt_profile_min_shapes, "
        "opt and max if sizes vary",
        repairs=tuple(fixes),
    )
