"""Write a build to a repository directory, or show the changes."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.base import files, transfer
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.base.files import File
from triton_repo_builder.produce.write import ownership
from triton_repo_builder.produce.write.built import BuiltEndpoint
from triton_repo_builder.repository import Manifest
from triton_repo_builder.repository.journal import staging, swap
from triton_repo_builder.repository.manifest import EndpointEntry, FileRecord

TEXT = (".pbtxt", ".json", ".txt", ".py")
HOW = "with --output"
"""How users choose the repository of the commands that publish."""
DIFFED = 256 * 1024
"""Larger files are compared by checksum only."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Changes to the directory, by path within it."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    """The user's own files, and other versions, in the directories that are replaced."""
    edited: tuple[str, ...] = ()
    """Files that were changed since ``trb`` wrote them: a build refuses without ``force``."""
    notes: tuple[str, ...] = ()
    record: tuple[str, ...] = ()
    """Changes of manifest.json, in words, if no other file changes: the release, say."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """A build compared with a repository directory; ``prepare`` has verified that it can be written."""

    output: Path
    files: tuple[File, ...]
    """All files that ``trb`` writes to the replaced directories, besides ``changes.kept``."""
    manifest: str
    names: tuple[str, ...]
    """Directories to swap, in order; none of them in ``files`` means removal."""
    changes: Changes
    before: Manifest
    """The manifest that the plan is based on."""


def prepare(build: BuiltEndpoint, output: Path, *, force: bool = False) -> Publication:
    """Compare with existing files. Raises ``TrbError`` OUTPUT_FOREIGN, EDITED_FILE, OUTPUT_NOT_WRITABLE."""
    return prepare_all((build,), output, force=force)


def prepare_all(
    builds: Sequence[BuiltEndpoint],
    output: Path,
    *,
    force: bool = False,
    refused: Callable[[BuiltEndpoint, TrbError], None] | None = None,
) -> Publication:
    """Several endpoints as one change. ``refused`` receives refused endpoints; without it they raise."""
    claims: list[ownership.Claim] = []
    owners: dict[str, str] = {}
    rebuilt = {build.name for build in builds}
    try:
        old = ownership.previous(output)
        for build in builds:
            try:
                claims.append(ownership.claim(build, old, owners, rebuilt, output, force))
            except TrbError as error:
                if refused is None:
                    raise
                refused(build, error)
                continue
            owners |= {model: build.name for model in build.models if model not in owners}
        if len(claims) < len(builds):
            # One that stays as it was may need what the others would give up.
            return prepare_all([claim.build for claim in claims], output, force=force, refused=refused)
        return _publication(claims, old, output)
    except OSError as error:
        raise files.explain(error, output, how=HOW) from error


def nothing(output: Path) -> Publication:
    """A publication that changes nothing."""
    before = ownership.previous(output)
    return Publication(
        output=output,
        files=(),
        manifest=before.to_text(),
        names=(),
        changes=Changes(added=(), changed=(), removed=(), kept=()),
        before=before,
    )


def _publication(claims: Sequence[ownership.Claim], old: Manifest, output: Path) -> Publication:
    """The claims of all builds as one change; a directory that several share counts once."""
    new = {file.path: file for claim in claims for file in claim.build.files}
    present = {path: file for claim in claims for path, file in claim.present.items()}
    recorded = {path: fact for claim in claims for path, fact in claim.recorded.items()}
    planned = {model for claim in claims for model in claim.build.models}
    owned = {name for claim in claims for name in claim.owned}
    # A tokenizer of its own that one build gives up may be one that another takes up.
    kept = {path for claim in claims for path in claim.kept if path not in new}
    described = {path: _record(file, recorded.get(path)) for path, file in new.items()}
    others = {
        path: record for path, record in old.files.items() if path in kept or path.split("/")[0] not in owned
    }
    entries = {claim.build.name: claim.build.entry for claim in claims}
    changes = Changes(
        added=tuple(sorted(path for path in new if path not in present)),
        changed=tuple(
            sorted(
                path
                for path, record in described.items()
                if path in present and not ownership.same(record, recorded.get(path), output / path)
            )
        ),
        removed=tuple(sorted(path for path in present if path not in new and path not in kept)),
        kept=tuple(sorted(kept)),
        edited=tuple(sorted({path for claim in claims for path in claim.edited})),
        notes=tuple(note for claim in claims for note in claim.notes),
    )
    names = _swapped(claims, changes)
    if not changes:
        changes = replace(changes, record=tuple(_record_changes(old.endpoints, entries)))
    return Publication(
        output=output,
        files=tuple(new.values()),
        manifest=Manifest(endpoints={**old.endpoints, **entries}, files={**others, **described}).to_text(),
        names=(*names, *sorted(owned - planned), repository.MANIFEST),
        changes=changes,
        before=old,
    )


def _record_changes(old: Mapping[str, EndpointEntry], new: Mapping[str, EndpointEntry]) -> Iterator[str]:
    """Fields of the entries that differ, with their old and new values if these are short."""
    for name in sorted(old.keys() & new.keys()):
        before, after = old[name].to_json(), new[name].to_json()
        for key in (key for key in {**before, **after} if before.get(key) != after.get(key)):
            values = [entry.get(key) for entry in (before, after)]
            short = all(value is None or isinstance(value, str | int) for value in values)
            shown = " {} → {}".format(*(value or "none" for value in values)) if short else ""
            yield f"{name}: {key}{shown}"


def _record(file: File, before: FileRecord | None) -> FileRecord:
    """A file's line of the manifest; unchanged content keeps the URL of its commit (``trb fetch``)."""
    sha256 = file.sha256()
    url = before.url if before and before.sha256 == sha256 else ""
    return FileRecord(sha256=sha256, bytes=file.size(), url=url)


def _swapped(claims: Sequence[ownership.Claim], changes: Changes) -> tuple[str, ...]:
    """Directories of the endpoints that change: the tokenizer and the model first, the ensemble after.

    Unchanged shared directories stay in place, since other endpoints use them, too.
    """
    touched = {path.split("/")[0] for path in (*changes.added, *changes.changed, *changes.removed)}
    swapped: dict[str, None] = {}
    for claim in claims:
        names = list(reversed(claim.build.models))
        if touched & {*names, *claim.owned}:
            kept = {name for name in claim.build.shared if name not in touched}
            swapped |= dict.fromkeys(name for name in names if name not in kept)
    return tuple(swapped)


def publish(publication: Publication) -> None:
    """Write all or nothing. Unchanged files are not touched, or a server would reload them."""
    output = publication.output
    current = output / repository.MANIFEST
    if not publication.changes and current.is_file() and files.read_text(current) == publication.manifest:
        return
    with staging.staging(output, how=HOW) as stage:
        for file in publication.files:
            if file.path.split("/")[0] in publication.names:
                files.put(file, stage)
        for path in publication.changes.kept:
            if path.split("/")[0] in publication.names:
                transfer.check_inside(path, str(output), output)
                files.keep(output / path, stage / path)
        (stage / repository.MANIFEST).write_text(publication.manifest, encoding="utf-8")
        created = not output.exists()
        output.mkdir(parents=True, exist_ok=True)
        with staging.exclusive(output):
            if (repository.read_manifest(output) or Manifest()) != publication.before:
                raise staging.busy(output, "another trb has changed this repository meanwhile")
            swap.swap(stage, output, publication.names, created=created)


def diff(publication: Publication) -> str:
    """A unified diff of the text files, one line for each other file; empty if nothing changes."""
    lines: list[str] = []
    new = {file.path: file for file in publication.files}
    lines += [f"changed: {repository.MANIFEST}: {line}\n" for line in publication.changes.record]
    for path in (*publication.changes.added, *publication.changes.changed, *publication.changes.removed):
        before = publication.output / path if path not in publication.changes.added else None
        lines += _diff_one(path, before, new.get(path))
    return "".join(lines)


def _diff_one(path: str, before: Path | None, after: File | None) -> list[str]:
    sizes = [before.stat().st_size if before else 0, after.size() if after else 0]
    if not path.endswith(TEXT) or max(sizes) > DIFFED or "/vendor/" in path:
        change = "added" if before is None else "removed" if after is None else "changed"
        return [f"{change}: {path} ({sizes[1] if after else sizes[0]:,} bytes)\n"]
    content = (files.read(after.source) if after.source else after.content) if after else b""
    old, fresh = (
        text.decode("utf-8", "replace").splitlines(keepends=True)
        for text in (files.read(before) if before else b"", content)
    )
    names = (path if before else "/dev/null", path if after else "/dev/null")
    return [line if line.endswith("\n") else line + "\n" for line in difflib.unified_diff(old, fresh, *names)]
