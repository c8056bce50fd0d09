"""The manifest that ``trb build`` wrote against the files that are there, and against their configurations."""

from __future__ import annotations

from collections.abc import Iterator

from triton_repo_builder.check.context import report
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.repository import CONFIG, MANIFEST, Repository, integrity
from triton_repo_builder.repository.provenance import PREFIX, Facts

BY_THE_SERVER = frozenset({"__pycache__"})
"""Files that running the models leaves behind."""


def check(repository: Repository) -> Iterator[Finding]:
    """Files changed, removed or added since the build, and configurations that name other sources."""
    if repository.manifest is None:
        yield from _lost(repository)
        return
    recorded = repository.manifest.files
    for altered in integrity.altered(repository.path, recorded):
        file = str(repository.path / altered.path)
        if altered.missing:
            message = "manifest.json lists this file, but it does not exist"
            remedy = f"get it with: trb fetch {repository.path}" if recorded[altered.path].url else ""
            yield report("manifest-missing", file, message, remedy=remedy)
        else:
            yield report("manifest-changed", file, "changed since trb built it: its sha256 differs")
    yield from _sources(repository)
    built = {name.split("/")[0] for name in recorded if "/" in name}
    for model in repository.models:
        if model.name not in built:
            continue
        for file in sorted(model.path.rglob("*")):
            path = file.relative_to(repository.path)
            if file.is_file() and path.as_posix() not in recorded and not BY_THE_SERVER & set(path.parts):
                yield report("manifest-extra", str(file), "manifest.json does not list this file")


def _lost(repository: Repository) -> Iterator[Finding]:
    """A model that ``trb`` built, without the manifest that says of what."""
    for model in repository.models:
        if f"{PREFIX}model_sha256" in model.config.parameters:
            message = (
                "trb built this model, but there is no manifest.json: nobody can say whether it is whole"
            )
            yield report("manifest-lost", str(repository.path / MANIFEST), message)
            return


def _sources(repository: Repository) -> Iterator[Finding]:
    """Configurations whose digests of the sources are not the manifest's."""
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
