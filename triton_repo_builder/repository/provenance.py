"""Origin of an endpoint: read from the manifest, and from the parameters of each config.pbtxt.

A running server repeats a model's ``parameters`` (``GET /v2/models/NAME/config``), so it states by itself
what it serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.edits import Edit
from triton_repo_builder.repository.manifest import Conversion, VersionEntry

PREFIX = "trb."
VERSION = PREFIX + "version"
"""Parameter of each config.pbtxt that ``trb`` wrote for one endpoint."""
SHARED = PREFIX + "shared"
"""Parameter of a model that endpoints share: independent of the order in which they were built."""
LABEL = "label."
LICENSE = "license"
"""The label that states the licence of a model that is from no Hub."""
CONTENT = "content"
"""Parameter of the endpoint's own config.pbtxt only: ``repository/content.py``."""


def parameters(entry: VersionEntry) -> tuple[tuple[str, str], ...]:
    """An entry of the manifest as parameters of a config.pbtxt.

    Without the options, so that a file that an option does not change stays the same.
    """
    facts = Facts.of_entry("", entry)
    pairs = [
        ("model_sha256", facts.model_sha256),
        ("source_sha256", " ".join(f"{name}:{sha}" for name, sha in facts.sources[1:])),
        ("version", facts.trb_version),
        ("source_run", facts.source_run),
        ("dataset_id", facts.dataset_id),
        ("hub", facts.hub),
        ("hub_file", facts.hub_file),
        ("license", facts.license),
        *((LABEL + key, value) for key, value in facts.labels),
    ]
    return tuple((PREFIX + key, value) for key, value in pairs if value)


def built(config: ModelConfig) -> bool:
    """Whether ``trb`` wrote the configuration of an endpoint, or of a step of one."""
    return f"{PREFIX}model_sha256" in config.parameters


def written(config: ModelConfig) -> bool:
    """Whether ``trb`` wrote the configuration, also of a model that endpoints share."""
    return VERSION in config.parameters or SHARED in config.parameters


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The chain behind one endpoint, or one model of a server; empty if nothing is known."""

    name: str
    model_sha256: str = ""
    sources: tuple[tuple[str, str], ...] = ()
    """(file name, sha256), the model first."""
    options_digest: str = ""
    options: Mapping[str, Any] | None = None
    """None if only the digest is known."""
    trb_version: str = ""
    source_run: str = ""
    dataset_id: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    hub: str = ""
    """``ORG/NAME@COMMIT`` of a model on a Hub."""
    hub_file: str = ""
    license: str = ""
    conversion: Conversion | None = None
    """The conversion of PyTorch weights, from manifest.json; a server does not state it."""
    versions: tuple[int, ...] = ()
    """Versions that are served."""
    content: str = ""
    """The content digest, hex; of a server's model, what its configuration says."""
    edits: Mapping[str, Edit] = field(default_factory=dict)
    """Accepted hand edits by path; of a server's model unknown."""

    @classmethod
    def of_entry(cls, name: str, entry: VersionEntry) -> Facts:
        """The facts that manifest.json records of one version."""
        sources, hub = tuple((source.file, source.sha256) for source in entry.sources), entry.provenance.hub
        return cls(
            name=name,
            model_sha256=sources[0][1] if sources else "",
            sources=sources,
            options_digest=entry.options_digest,
            options=entry.options,
            trb_version=entry.tools.get("triton_repo_builder", ""),
            source_run=entry.provenance.source_run,
            dataset_id=entry.provenance.dataset_id,
            labels=tuple(entry.provenance.labels.items()),
            hub=f"{hub.model}@{hub.commit}" if hub else "",
            hub_file=hub.file if hub else "",
            license=hub.license if hub else entry.provenance.labels.get(LICENSE, ""),
            conversion=entry.provenance.conversion,
            versions=(entry.version,),
            content=entry.content,
            edits=entry.edits,
        )

    @classmethod
    def of_config(cls, name: str, config: ModelConfig, versions: tuple[int, ...] = ()) -> Facts:
        """The facts in a model's configuration, on disk or from a server."""
        stated = {
            key.removeprefix(PREFIX): value
            for key, value in config.parameters.items()
            if key.startswith(PREFIX)
        }
        sources = tuple(part.rpartition(":")[::2] for part in stated.get("source_sha256", "").split())
        first = (("model", stated["model_sha256"]),) if "model_sha256" in stated else ()
        return cls(
            name=name,
            model_sha256=stated.get("model_sha256", ""),
            sources=(*first, *sources),
            trb_version=stated.get("version", ""),
            source_run=stated.get("source_run", ""),
            dataset_id=stated.get("dataset_id", ""),
            labels=tuple(
                sorted((k.removeprefix(LABEL), v) for k, v in stated.items() if k.startswith(LABEL))
            ),
            hub=stated.get("hub", ""),
            hub_file=stated.get("hub_file", ""),
            license=stated.get("license", ""),
            versions=versions,
            content=stated.get(CONTENT, ""),
        )

    def same(self, other: Facts) -> bool:
        """Whether both have the same model, sources and origin."""
        mine, theirs = (
            (f.model_sha256, {sha for _, sha in f.sources}, f.source_run, f.dataset_id, f.hub, f.labels)
            for f in (self, other)
        )
        return mine == theirs

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "versions": list(self.versions),
            "content": self.content or None,
            "model_sha256": self.model_sha256 or None,
            "sources": [{"file": file, "sha256": sha} for file, sha in self.sources],
            "options": self.options,
            "options_digest": self.options_digest or None,
            "trb_version": self.trb_version or None,
            "source_run": self.source_run or None,
            "dataset_id": self.dataset_id or None,
            "hub": self.hub or None,
            "hub_file": self.hub_file or None,
            "license": self.license or None,
            "conversion": self.conversion.to_json() if self.conversion else None,
            "labels": dict(self.labels),
            "edits": {path: edit.to_json() for path, edit in sorted(self.edits.items())},
        }
