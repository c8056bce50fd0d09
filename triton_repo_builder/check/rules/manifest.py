"""Comparison of the manifest of ``trb build`` with the files and their configurations."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping

from triton_repo_builder.check.codes import CODES
from triton_repo_builder.check.context import readable, report
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.repository import (
    CONFIG,
    MANIFEST,
    Manifest,
    Repository,
    integrity,
    provenance,
)
from triton_repo_builder.repository.manifest import FileRecord
from triton_repo_builder.repository.provenance import Facts


def check(repository: Repository, only: Collection[str] | None = None) -> Iterator[Finding]:
    """Files changed, removed or added since the build, and configurations that name other sources.

    With ``only``, files of other entries are not read, unless it contains the manifest.
    """
    every = only is None or MANIFEST in only
    if repository.damage:
        yield report("manifest-unreadable", str(repository.path / MANIFEST), repository.damage)
        return
    if repository.manifest is None:
        yield from _lost(repository)
        return
    recorded, changed = repository.manifest.files, set[str]()
    for name in (name for name in recorded if every or name.split("/")[0] in (only or ())):
        altered = functools.partial(_altered, repository, recorded, name, changed)
        yield from readable(repository.path / name, altered)
    yield from _sources(repository)
    yield from _contents(repository, repository.manifest, changed)
    built = {name.split("/")[0] for name in recorded if "/" in name}
    for model in repository.models:
        if model.name not in built or not (every or model.name in (only or ())):
            continue
        for extra in integrity.added(repository.path, recorded, model.name):
            where = str(repository.path / extra.path)
            yield report("manifest-extra", where, "manifest.json does not list this file")


def _altered(
    repository: Repository, recorded: Mapping[str, FileRecord], path: str, changed: set[str]
) -> Iterator[Finding]:
    """One recorded file that is missing or differs; the model of one that differs is added to ``changed``."""
    where = str(repository.path / path)
    for altered in integrity.altered(repository.path, {path: recorded[path]}):
        if altered.missing:
            message = "manifest.json lists this file, but it does not exist"
            remedy = f"get it with: trb fetch {repository.path}" if recorded[path].url else ""
            yield report("manifest-missing", where, message, remedy=remedy)
        else:
            remedy = CODES["manifest-changed"].remedy.replace("trb accept", f"trb accept {repository.path}")
            message = "changed since trb built it: its sha256 differs"
            changed.add(path.split("/")[0])
            yield report("manifest-changed", where, message, remedy=remedy)


def _lost(repository: Repository) -> Iterator[Finding]:
    """A model that ``trb`` built, without the manifest of its sources."""
    for model in repository.models:
        if provenance.built(model.config):
            message = (
                "trb built this model, but there is no manifest.json: nobody can say whether it is whole"
            )
            yield report("manifest-lost", str(repository.path / MANIFEST), message)
            return


def _sources(repository: Repository) -> Iterator[Finding]:
    """Configurations whose source digests differ from the manifest."""
    for name, entry in sorted(repository.manifest.endpoints.items() if repository.manifest else ()):
        expected = Facts.of_entry(name, entry.served)
        for model in filter(None, map(repository.model, entry.models)):
            stated = Facts.of_config(model.name, model.config)
            if stated.model_sha256 and (
                stated.model_sha256 != expected.model_sha256
                or {sha for _, sha in stated.sources} != {sha for _, sha in expected.sources}
            ):
                message = f"its trb.* parameters name other source files than manifest.json has for '{name}'"
                yield report("manifest-sources", str(model.path / CONFIG), message)


def _contents(repository: Repository, manifest: Manifest, changed: Collection[str]) -> Iterator[Finding]:
    """Versions with different content digests in config.pbtxt, in the manifest, or of the recorded files.

    A file of a model in ``changed`` is a finding already.
    """
    for disagreement in integrity.disagreements(repository.path, manifest):
        digests = disagreement.digests
        version = manifest.endpoints[disagreement.endpoint].versions[disagreement.version]
        if digests[CONFIG] == digests[MANIFEST] and {*version.models} & {*changed}:
            continue
        yield report("manifest-content", str(repository.path / disagreement.path), str(disagreement))
