"""Where an endpoint comes from: what the manifest records of a build, and the same in each config.pbtxt.

A running server repeats a model's ``parameters`` (``GET /v2/models/NAME/config``), so it can say itself
what it serves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from triton_repo_builder.plan.model import RepositoryPlan
from triton_repo_builder.read.options import ORIGINS, BuildOptions
from triton_repo_builder.repository.config import ModelConfig

PREFIX = "trb."
LABEL = "label."
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


def recorded(options: BuildOptions) -> dict[str, Any]:
    """How an endpoint was built and of what, for its entry in the manifest; only what was given."""
    how = asked(options)
    said: dict[str, Any] = {"options": how, "options_digest": digest(how)}
    origin: dict[str, Any] = {}
    if options.source_run is not None:
        origin["source_run"] = options.source_run
    if options.dataset_id is not None:
        origin["dataset_id"] = options.dataset_id
    if options.label:
        origin["labels"] = dict(sorted(options.label))
    return said | ({"provenance": origin} if origin else {})


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


def parameters(entry: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """An entry of the manifest as parameters of a config.pbtxt.

    Not the options: what they change shows in the files, and a file that they do not change stays the same.
    """
    facts = Facts.of_entry("", entry)
    pairs = [
        ("model_sha256", facts.model_sha256),
        ("source_sha256", " ".join(f"{name}:{sha}" for name, sha in facts.sources[1:])),
        ("version", facts.trb_version),
        ("source_run", facts.source_run),
        ("dataset_id", facts.dataset_id),
        *((LABEL + key, value) for key, value in facts.labels),
    ]
    return tuple((PREFIX + key, value) for key, value in pairs if value)


def stamp(plan: RepositoryPlan, entry: Mapping[str, Any]) -> RepositoryPlan:
    """The plan with an entry's facts among its models' parameters; not of those that endpoints share."""
    facts = parameters(entry)
    models = tuple(
        model if model.name in plan.shared else replace(model, parameters=(*model.parameters, *facts))
        for model in plan.models
    )
    return replace(plan, models=models)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The chain behind one endpoint, or one model of a server; empty where nothing is known."""

    name: str
    model_sha256: str = ""
    sources: tuple[tuple[str, str], ...] = ()
    """(file name, sha256), the model first."""
    options_digest: str = ""
    options: Mapping[str, Any] | None = None
    """None where only the digest is known."""
    trb_version: str = ""
    source_run: str = ""
    dataset_id: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    versions: tuple[int, ...] = ()
    """Which versions are served."""

    @classmethod
    def of_entry(cls, name: str, entry: Mapping[str, Any]) -> Facts:
        """From an endpoint's entry in manifest.json, older ones too."""
        sources = tuple((str(s["file"]), str(s["sha256"])) for s in entry.get("sources", ()))
        origin = entry.get("provenance", {})
        return cls(
            name=name,
            model_sha256=sources[0][1] if sources else "",
            sources=sources,
            options_digest=str(entry.get("options_digest", "")),
            options=entry.get("options"),
            trb_version=str(entry.get("tools", {}).get("triton_repo_builder", "")),
            source_run=str(origin.get("source_run", "")),
            dataset_id=str(origin.get("dataset_id", "")),
            labels=tuple((str(k), str(v)) for k, v in origin.get("labels", {}).items()),
            versions=(int(entry["version"]),) if "version" in entry else (),
        )

    @classmethod
    def of_config(cls, name: str, config: ModelConfig, versions: tuple[int, ...] = ()) -> Facts:
        """From a model's configuration, on disk or as a server gives it."""
        said = {
            key.removeprefix(PREFIX): value
            for key, value in config.parameters.items()
            if key.startswith(PREFIX)
        }
        more = tuple(part.rpartition(":")[::2] for part in said.get("source_sha256", "").split())
        first = (("model", said["model_sha256"]),) if "model_sha256" in said else ()
        return cls(
            name=name,
            model_sha256=said.get("model_sha256", ""),
            sources=(*first, *more),
            trb_version=said.get("version", ""),
            source_run=said.get("source_run", ""),
            dataset_id=said.get("dataset_id", ""),
            labels=tuple(sorted((k.removeprefix(LABEL), v) for k, v in said.items() if k.startswith(LABEL))),
            versions=versions,
        )

    def same(self, other: Facts) -> bool:
        """Whether both were made of the same things."""
        mine, theirs = (
            (f.model_sha256, {sha for _, sha in f.sources}, f.source_run, f.dataset_id, f.labels)
            for f in (self, other)
        )
        return mine == theirs

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        return {
            "name": self.name,
            "versions": list(self.versions),
            "model_sha256": self.model_sha256 or None,
            "sources": [{"file": file, "sha256": sha} for file, sha in self.sources],
            "options": self.options,
            "options_digest": self.options_digest or None,
            "trb_version": self.trb_version or None,
            "source_run": self.source_run or None,
            "dataset_id": self.dataset_id or None,
            "labels": dict(self.labels),
        }
