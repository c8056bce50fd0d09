"""What a build records of itself: its options and origin in the manifest, the same in each config.pbtxt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from triton_repo_builder.plan.model import RepositoryPlan
from triton_repo_builder.read.options import ORIGINS, BuildOptions
from triton_repo_builder.repository.manifest import Origin, VersionEntry
from triton_repo_builder.repository.provenance import parameters

_GIVEN = ("source_run", "dataset_id", "label")
_PLACES = (
    "model",
    "name",
    "tokenizer",
    "output",
    "version",
    "tokenizers_wheel",
    "pillow_wheel",
    ORIGINS,
    *_GIVEN,
)
"""Options that say where or who, not how: two builds that differ in these alone are built alike."""


def origin(options: BuildOptions) -> Origin:
    """Where the user says that the model comes from."""
    return Origin(
        source_run=options.source_run or "",
        dataset_id=options.dataset_id or "",
        labels=dict(sorted(options.label)),
    )


def asked(options: BuildOptions) -> dict[str, Any]:
    """The options that differ from their defaults, as JSON values, paths left out."""
    given: dict[str, Any] = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name not in _PLACES and value != field.default and not isinstance(value, Path):
            given[field.name] = list(value) if isinstance(value, tuple) else value
    return dict(sorted(given.items()))


def digest(options: Mapping[str, Any]) -> str:
    """Hex sha256 of options: equal where two builds were asked for alike."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()


def stamp(plan: RepositoryPlan, entry: VersionEntry) -> RepositoryPlan:
    """The plan with an entry's facts among its models' parameters; not of those that endpoints share."""
    facts = parameters(entry)
    models = tuple(
        model if model.name in plan.shared else replace(model, parameters=(*model.parameters, *facts))
        for model in plan.models
    )
    return replace(plan, models=models)
