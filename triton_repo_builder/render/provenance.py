"""What a build records of itself: its options and origin in the manifest, the same in each config.pbtxt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from triton_repo_builder.plan.model import RepositoryPlan
from triton_repo_builder.read.options import OPTIONS, BuildOptions
from triton_repo_builder.repository.manifest import Origin, VersionEntry
from triton_repo_builder.repository.provenance import parameters


def origin(options: BuildOptions) -> Origin:
    """Where the user says that the model comes from."""
    return Origin(
        source_run=options.source_run or "",
        dataset_id=options.dataset_id or "",
        labels=dict(sorted(options.label)),
    )


def asked(options: BuildOptions) -> dict[str, Any]:
    """The options that differ from their defaults and tell how to build, as JSON values."""
    changed = {
        field.name: getattr(options, field.name)
        for field in fields(options)
        if field.name in OPTIONS
        and OPTIONS[field.name].recorded
        and getattr(options, field.name) != field.default
    }
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in sorted(changed.items())
    }


def digest(options: Mapping[str, Any]) -> str:
    """Hex sha256 of options: equal for two builds with the same options."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()


def stamp(plan: RepositoryPlan, entry: VersionEntry) -> RepositoryPlan:
    """The plan with an entry's facts among its models' parameters; not of those that endpoints share."""
    facts = parameters(entry)
    models = tuple(
        model if model.name in plan.shared else replace(model, parameters=(*model.parameters, *facts))
        for model in plan.models
    )
    return replace(plan, models=models)
