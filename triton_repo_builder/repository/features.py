"""Parts of a configuration that not every release of Triton has, by their names in releases.toml."""

from __future__ import annotations

from collections.abc import Iterator

from triton_repo_builder.base.releases import Release
from triton_repo_builder.repository.model import Model

FIELDS: dict[tuple[str, ...], tuple[str, str]] = {
    ("model_metrics",): ("ModelConfig", "model_metrics"),
    ("ensemble_scheduling", "max_inflight_requests"): ("ModelEnsembling", "max_inflight_requests"),
}
"""Path of each field newer than 24.04 → its message and its feature in releases.toml."""
DEVICE_ALLOCATOR = "session.use_device_allocator_for_initializers"
SAMPLES = "answers_model"
"""Parameter of a Python model of trb's that calls another model between its executions."""


def missing(model: Model, release: Release) -> list[str]:
    """Parts of a model's configuration that the release lacks, with their effect on its server."""
    return [f"{part} ({effect})" for part, feature, effect in _used(model) if feature not in release.features]


def _used(model: Model) -> Iterator[tuple[str, str, str]]:
    """The part, its feature, and what an older server does."""
    config = model.config
    for path, (_, feature) in FIELDS.items():
        place = config.raw
        for name in path[:-1]:
            place = place.get(name, {})
        if path[-1] in place:
            yield path[-1], feature, "the server refuses config.pbtxt"
    if DEVICE_ALLOCATOR in config.parameters:
        yield DEVICE_ALLOCATOR, "ort_device_allocator_for_initializers", "it is ignored"
    if SAMPLES in config.parameters:
        yield SAMPLES, "python_bls_at_any_time", "answers are not counted"
    if config.cached and model.steps:
        yield "response_cache of an ensemble", "ensemble_response_cache", "answers are not cached"
    tensors = (*config.raw.get("input", ()), *config.raw.get("output", ()))
    if model.backend == "onnxruntime" and any(each.get("data_type") == "TYPE_BF16" for each in tensors):
        yield "TYPE_BF16", "bf16_io", "the model does not load"
