"""The result of a build: the files of one version of an endpoint, and its manifest entry."""

from __future__ import annotations

from dataclasses import dataclass

from triton_repo_builder.base.files import File
from triton_repo_builder.repository.manifest import EndpointEntry


@dataclass(frozen=True, kw_only=True)
class BuiltEndpoint:
    """One version of an endpoint, to be written."""

    version: int
    files: tuple[File, ...]
    entry: EndpointEntry
    """The endpoint in the new manifest; it may serve another version."""
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.entry.served.endpoint.name

    @property
    def models(self) -> tuple[str, ...]:
        """The model directories of this version, the endpoint first."""
        return self.entry.versions[self.version].models

    @property
    def shared(self) -> tuple[str, ...]:
        """The ``models`` that other endpoints may use, too."""
        return self.entry.versions[self.version].shared
