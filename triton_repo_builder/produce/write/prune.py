"""Removal of older versions of an endpoint, for ``trb build --keep N`` and ``trb remove NAME --keep N``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.produce.write import ownership, publish, versions
from triton_repo_builder.produce.write.publish import Changes, Publication
from triton_repo_builder.repository import MANIFEST, Manifest


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """Versions to remove; they stay until the publication is written."""

    removed: Mapping[str, tuple[int, ...]]
    """Versions by endpoint, ascending; empty for an endpoint that keeps all of its versions."""
    edited: tuple[str, ...]
    """Edited files and the user's own, which keep their version in place."""
    manifest: Manifest
    publication: Publication


def plan(
    output: Path,
    names: Sequence[str],
    keep: int,
    *,
    recorded: Manifest | None = None,
    built: int | None = None,
    force: bool = False,
) -> Pruning:
    """The removal of all versions but the newest ``keep``, the served one, the one before and ``built``.

    ``recorded``: the manifest of a build that is not written yet. ``force`` removes edited files, too, but
    never the user's own. Raises ``TrbError`` NOT_FOUND, OUTPUT_NOT_WRITABLE.
    """
    before = recorded or ownership.previous(output)
    ownership.check_names(names, before, output)
    after, removed, edited, folders = before, {}, [], []
    try:
        for name in names:
            folders_of = {
                version: _folders(before, name, version)
                for version in _surplus(output, before, name, keep, built)
            }
            foreign = {
                version: _foreign(output, before, paths, force=force) for version, paths in folders_of.items()
            }
            removed[name] = tuple(version for version in folders_of if not foreign[version])
            edited += [path for paths in foreign.values() for path in paths]
            folders += [path for version in removed[name] for path in folders_of[version]]
            after = _without(after, name, removed[name])
    except OSError as error:
        raise files.explain(error, output, how=publish.HOW) from error
    gone = tuple(f"{folder}/" for folder in folders)
    dropped = sorted(path for path in before.files if path.startswith(gone))
    after = replace(
        after, files={path: fact for path, fact in before.files.items() if path not in {*dropped}}
    )
    return Pruning(
        removed=removed,
        edited=tuple(edited),
        manifest=after,
        publication=Publication(
            output=output,
            files=(),
            manifest=after.to_text(),
            names=(*folders, MANIFEST),
            changes=Changes(
                added=(),
                changed=(),
                removed=tuple(path for path in dropped if (output / path).is_file()),
                kept=(),
            ),
            before=before,
        ),
    )


def write(pruning: Pruning) -> None:
    """Remove the versions in one swap. Raises ``TrbError``."""
    if any(pruning.removed.values()):
        publish.publish(pruning.publication)


def with_build(build: Publication, pruning: Pruning) -> Publication:
    """The publication of a build, whose changes also list the files of the removed versions."""
    removed = pruning.publication.changes.removed
    if not removed:
        return build
    changes = replace(build.changes, removed=tuple(sorted({*build.changes.removed, *removed})), record=())
    return replace(build, changes=changes)


def _surplus(output: Path, recorded: Manifest, name: str, keep: int, built: int | None) -> list[int]:
    """Versions that need not stay, ascending."""
    entry = recorded.endpoints[name]
    numbers = sorted({*versions.present(output, entry.models), *([] if built is None else [built])})
    stay = {*numbers[-keep:], entry.served.version, entry.previous, built}
    return [number for number in numbers if number not in stay]


def _folders(recorded: Manifest, name: str, version: int) -> list[str]:
    """Folders of a version, without those of models that another endpoint uses."""
    needed = {
        model
        for other, entry in recorded.endpoints.items()
        if other != name
        for stored in entry.versions.values()
        for model in stored.models
    }
    return [f"{model}/{version}" for model in recorded.endpoints[name].models if model not in needed]


def _without(recorded: Manifest, name: str, removed: Sequence[int]) -> Manifest:
    """The manifest without these versions of an endpoint."""
    if not removed:
        return recorded
    old = recorded.endpoints[name]
    remaining = {number: entry for number, entry in old.versions.items() if number not in removed}
    entry = versions.arrange(remaining, old.served.version, old.previous)
    return replace(recorded, endpoints={**recorded.endpoints, name: entry})


def _foreign(output: Path, recorded: Manifest, folders: Sequence[str], *, force: bool) -> list[str]:
    """Files in these folders that are not as ``trb`` wrote them; with ``force`` those it did not write."""
    foreign = []
    for file in sorted(path for folder in folders for path in (output / folder).rglob("*") if path.is_file()):
        path = file.relative_to(output).as_posix()
        record = recorded.files.get(path)
        if record is None or (not force and files.hash_file(file) != record.sha256):
            foreign.append(path)
    return foreign
