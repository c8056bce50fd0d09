"""Ownership of a repository's directories by endpoints, and of the files in them by the user."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.write.built import BuiltEndpoint
from triton_repo_builder.repository import Manifest
from triton_repo_builder.repository.manifest import EndpointEntry, FileRecord, VersionEntry

"""Remedy for an edited file that a build would replace."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Effect of one build on the directories that it owns, or will own."""

    build: BuiltEndpoint
    owned: frozenset[str]
    recorded: Mapping[str, FileRecord]
    """The manifest's records of the files in ``owned``."""
    kept: tuple[str, ...]
    present: Mapping[str, Path]
    edited: tuple[str, ...]
    notes: tuple[str, ...]


def claim(
    build: BuiltEndpoint,
    old: Manifest,
    owners: Mapping[str, str],
    rebuilt: set[str],
    output: Path,
    force: bool,
) -> Claim:
    """Effect of a build on the repository. Raises ``TrbError`` OUTPUT_FOREIGN, EDITED_FILE, BAD_NAME."""
    _check_unique(build, owners)
    before = old.endpoints.get(build.name)
    owned = set(before.models if before else ())
    _check_ours(build, old, owned, output)
    # What others still need stays as it is; what they share with this build is also this build's.
    needed = {m for name, entry in old.endpoints.items() if name not in rebuilt for m in entry.models}
    owned = (owned - needed) | {name for name in build.shared if (output / name).exists()}
    recorded = {path: record for path, record in old.files.items() if path.split("/")[0] in owned}
    current = present(output, sorted(owned))
    edited = _edited(build, recorded, current, output)
    if edited and not force:
        raise edited_error(edited, output, accept_remedy(output))
    new = {file.path for file in build.files}
    kept = [
        path for path in current if path not in new and _keep(path, recorded, build.version, build.models)
    ]
    return Claim(
        build=build,
        owned=frozenset(owned),
        recorded=recorded,
        kept=tuple(kept),
        present=current,
        edited=tuple(edited),
        notes=_replaced(build, before, kept, force),
    )


def accept_remedy(output: Path) -> str:
    """Remedy for a hand edit."""
    accept = f"trb accept {output} --why REASON"
    return f"record the edit, which later builds keep: {accept}; or replace it with --force"


def previous(output: Path) -> Manifest:
    """The manifest of the repository; an empty one for a new folder. Raises ``TrbError`` OUTPUT_FOREIGN."""
    if not output.exists():
        return Manifest()
    if not output.is_dir():
        raise TrbError(
            Code.OUTPUT_FOREIGN,
            "is a file, not a folder",
            where=str(output),
            remedy="choose another folder with --output",
        )
    manifest = repository.read_manifest(output)
    if manifest is not None:
        return manifest
    if any(output.iterdir()):
        raise TrbError(
            Code.OUTPUT_FOREIGN,
            "holds files but no manifest.json of trb; nothing was touched",
            where=str(output),
            remedy="choose an empty or a new folder with --output",
        )
    return Manifest()


def check_names(names: Sequence[str], recorded: Manifest, output: Path) -> None:
    """Raise ``TrbError`` NOT_FOUND for a name that is not an endpoint of the manifest."""
    for name in names:
        if name not in recorded.endpoints:
            endpoints = ", ".join(sorted(recorded.endpoints)[:8]) or "none"
            raise TrbError(
                Code.NOT_FOUND,
                f"no endpoint '{name}' that trb built",
                where=str(output),
                remedy=f"its endpoints: {endpoints}",
            )


def _check_unique(build: BuiltEndpoint, owners: Mapping[str, str]) -> None:
    """Refuse two endpoints of one run that share a directory other than a tokenizer model."""
    for model in build.models:
        if model in owners and model not in build.shared:
            raise TrbError(
                Code.BAD_NAME,
                f"its directory '{model}' is also one of the endpoint '{owners[model]}'",
                where=build.name,
                remedy="give one of them another name: name = ... in the [build] table of its trb.toml",
            )


def _check_ours(build: BuiltEndpoint, old: Manifest, owned: set[str], output: Path) -> None:
    """Refuse to replace a directory of another endpoint or of the user."""
    for model in build.models:
        if model in owned or not (output / model).exists():
            continue
        owners = [name for name, entry in old.endpoints.items() if model in entry.models]
        if owners and model in build.shared:
            continue  # called by its content, so it is theirs and ours
        owner = next(iter(owners), None)
        whose = f"belongs to the endpoint '{owner}'" if owner else "was not written by trb"
        raise TrbError(
            Code.OUTPUT_FOREIGN,
            f"the directory {whose}; nothing was touched",
            where=str(output / model),
            remedy="choose another name with --name, or move it away",
        )


def _replaced(
    build: BuiltEndpoint, before: EndpointEntry | None, kept: list[str], force: bool
) -> tuple[str, ...]:
    """A note if another model is replaced; ``TrbError`` if the other versions could not be served any more.

    All versions of a model share one config.pbtxt: they must have the same inputs and outputs.
    """
    if before is None:
        return ()
    old, new = before.served, build.entry.served
    others = sorted({version for path in kept if (version := _version(path)) not in (None, build.version)})
    if others and _interface(old) != _interface(new) and not force:
        listed = ", ".join(map(str, others))
        raise TrbError(
            Code.OUTPUT_FOREIGN,
            f"version {listed} has other inputs, outputs or steps, and all versions share one config.pbtxt",
            where=build.name,
            remedy="build it under another --name, or with --force if the older versions need not be served",
        )
    was, now = old.sources[:1], new.sources[:1]
    if [file.sha256 for file in was] == [file.sha256 for file in now] or old.version != build.version:
        return ()
    models = " → ".join(f"{source.file} {source.sha256[:12]}" for source in (*was, *now))
    return (f"the endpoint '{build.name}' was built from another model, which this replaces ({models})",)


def _interface(entry: VersionEntry) -> tuple[Any, ...]:
    tensors = (*entry.endpoint.inputs, *entry.endpoint.outputs)
    return entry.task, entry.models, tensors, [tensor.optional for tensor in tensors]


def present(output: Path, models: list[str]) -> dict[str, Path]:
    """Every file in these models' directories, by its path in the repository.

    Raises ``TrbError`` OUTPUT_FOREIGN for a directory that is a link out of it: its files would be taken in.
    """
    paths: dict[str, Path] = {}
    for name in models:
        if not (output / name).resolve().is_relative_to(output.resolve()):
            raise TrbError(
                Code.OUTPUT_FOREIGN,
                f"a link to {(output / name).resolve()}, outside of the repository; nothing was touched",
                where=str(output / name),
                remedy="remove the link, or put the folder itself there",
            )
        for path in sorted((output / name).rglob("*")):
            # Links are files too, and broken ones: what is missing here is lost.
            if (path.is_file() or path.is_symlink()) and "__pycache__" not in path.parts:
                paths[path.relative_to(output).as_posix()] = path
    return paths


def _edited(
    build: BuiltEndpoint, recorded: Mapping[str, FileRecord], present: Mapping[str, Path], output: Path
) -> list[str]:
    """Files edited since trb wrote them that the build would replace or drop."""
    sources = {file.path: file.source for file in build.files}
    edited = []
    for path, record in recorded.items():
        file = present.get(path)
        if file is None or not file.is_file():
            continue
        source = sources.get(path)
        if source is not None and source.exists() and file.samefile(source):
            continue  # a hard link to the very file we would write: the user's model, not an edit
        if _version(path) not in (None, build.version):
            continue  # another version stays as it is, edited or not
        if not same(record, record, file):
            edited.append(path)
    return edited


def _version(path: str) -> int | None:
    parts = path.split("/")
    return int(parts[1]) if len(parts) > 2 and repository.VERSION.fullmatch(parts[1]) else None


def _keep(path: str, recorded: Mapping[str, FileRecord], version: int, planned: Collection[str]) -> bool:
    """The user's own files stay, and so do other versions of a model that still exists."""
    if path not in recorded:
        return True
    return path.split("/")[0] in planned and _version(path) not in (None, version)


def same(record: FileRecord, old: FileRecord | None, file: Path) -> bool:
    """Whether the file has the recorded bytes; ``old`` is the manifest's current record."""
    if not file.is_file() or (old is not None and record.sha256 != old.sha256):
        return False
    return file.stat().st_size == record.bytes and files.hash_file(file) == record.sha256


def edited_error(
    edited: Sequence[str], output: Path, remedy: str, *, foreign: Sequence[str] = ()
) -> TrbError:
    """Files that were changed since ``trb`` wrote them; ``foreign``: the user's own where it has to write."""
    parts = []
    if edited:
        parts.append(f"changed since trb wrote it: {_listed(edited)}")
    if foreign:
        parts.append(f"in the way of what trb writes, and not written by trb: {_listed(foreign)}")
    return TrbError(Code.EDITED_FILE, "; ".join(parts), where=str(output), remedy=remedy)


def _listed(paths: Sequence[str]) -> str:
    return ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
