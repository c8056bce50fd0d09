"""Fields that the target release does not know: its parser refuses the whole file."""

from __future__ import annotations

from collections.abc import Iterator

from triton_repo_builder import releases
from triton_repo_builder.check.context import ModelContext
from triton_repo_builder.check.finding import Finding

FIELDS: dict[tuple[str, ...], tuple[str, str]] = {
    ("model_metrics",): ("ModelConfig", "model_metrics"),
    ("ensemble_scheduling", "max_inflight_requests"): ("ModelEnsembling", "max_inflight_requests"),
}
"""Path of each field newer than 24.04 → its message and its feature in releases.toml."""
DEVICE_ALLOCATOR = "session.use_device_allocator_for_initializers"


def check(context: ModelContext) -> Iterator[Finding]:
    """Looks at the text: a field that is written with its default value is refused as well."""
    for path, (message, feature) in FIELDS.items():
        if feature not in context.release.features and context.written(*path):
            first = releases.first_with(feature)
            yield context.finding(
                "field-too-new",
                f'Message type "inference.{message}" has no field named "{path[-1]}".',
                *path,
                remedy=f"remove it, or serve with release {first} or later (this is {context.release.name})",
            )
    allocator = DEVICE_ALLOCATOR in context.config.parameters
    if allocator and "ort_device_allocator_for_initializers" not in context.release.features:
        first = releases.first_with("ort_device_allocator_for_initializers")
        message = f"release {context.release.name} ignores {DEVICE_ALLOCATOR}"
        yield context.finding(
            "parameter-ignored", message, "parameters", remedy=f"it takes effect from {first} on"
        )
