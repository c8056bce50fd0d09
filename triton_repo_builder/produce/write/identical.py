"""Builds with the content of an existing version, which would add only a version number."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from triton_repo_builder.produce.write import versions
from triton_repo_builder.produce.write.built import BuiltEndpoint
from triton_repo_builder.repository import CONFIG, SHARED, VERSION, Manifest, content, integrity, manifest
from triton_repo_builder.repository.manifest import EndpointEntry, FileRecord


def twin(build: BuiltEndpoint, output: Path) -> int | None:
    """The endpoint's newest version with the content of ``build``; None if its number already exists.

    The content: the files in the version's folders, and those that versions share, as each keeps its own.
    """
    recorded = manifest.read(output) or Manifest()
    entry = recorded.endpoints.get(build.name)
    if entry is None:
        return None
    numbers = versions.present(output, entry.models)
    if build.version in numbers:
        return None
    return next((n for n in reversed(numbers) if _same(build, entry, n, recorded.files, output)), None)


def _same(
    build: BuiltEndpoint, entry: EndpointEntry, number: int, records: Mapping[str, FileRecord], output: Path
) -> bool:
    if number not in entry.versions or entry.versions[number].models != build.models:
        return False
    shared = versions.stored(output, build.models, number)
    if not shared and number == entry.served.version:
        shared = versions.current(output, build.models, number)
    repinned = {path: content.pinned(path, text, build.version) for path, text in shared.items()}
    if _unsealed(repinned) != _unsealed(versions.shared_of(build)):
        return False
    old = {path: record for path, record in records.items() if _versioned(path, build.models, number)}
    new = {
        _numbered(file.path, number): file
        for file in build.files
        if versions.is_versioned(file.path, build.version)
    }
    # What is large is read last, and not at all where the records differ.
    return (
        old.keys() == new.keys()
        and all(old[path].bytes == file.size() for path, file in new.items())
        and all(old[path].sha256 == file.sha256() for path, file in new.items())
        and not integrity.altered(output, {**old, **_beside(records, build.models)})
    )


def _beside(records: Mapping[str, FileRecord], models: tuple[str, ...]) -> dict[str, FileRecord]:
    """The models' files outside of version folders."""
    split = {path: path.split("/") for path in records}
    return {
        path: records[path]
        for path, (model, *rest) in split.items()
        if model in models and rest and not VERSION.fullmatch(rest[0])
    }


def _versioned(path: str, models: tuple[str, ...], number: int) -> bool:
    model, *rest = path.split("/")
    return model in models and rest[:1] == [str(number)] and rest[1:2] != [SHARED]


def _numbered(path: str, number: int) -> str:
    model, _, rest = path.split("/", 2)
    return f"{model}/{number}/{rest}"


def _unsealed(shared: Mapping[str, bytes]) -> dict[str, bytes]:
    """The configuration without content digests, which depend on the version's number."""
    return {
        path: content.unsealed(text) if path.endswith(f"/{CONFIG}") else text for path, text in shared.items()
    }
