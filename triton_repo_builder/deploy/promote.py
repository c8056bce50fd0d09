"""Serve another version of an endpoint, in the repository; ``deploy/live.py`` does it on a running server."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from triton_repo_builder import files, repository
from triton_repo_builder.client import HttpClient
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.repository import CONFIG, SHARED, Manifest, manifest
from triton_repo_builder.repository.manifest import FileRecord
from triton_repo_builder.write import versions


@dataclass(frozen=True, kw_only=True)
class Move:
    """A change of the served version that the repository allows."""

    root: Path
    name: str
    models: tuple[str, ...]
    """The endpoint first."""
    manifest: Manifest
    old: int
    new: int
    old_files: Mapping[str, bytes]
    """The files in the models' folders while ``old`` is served, without policy."""
    new_files: Mapping[str, bytes]

    @property
    def steps(self) -> tuple[str, ...]:
        """The models behind the endpoint."""
        return self.models[1:]


def plan(root: Path, name: str, version: int | None, *, force: bool = False) -> Move | None:
    """The move to ``version``, or back to the one before (None); None if it is served already.

    Raises ``TrbError`` PROMOTE_FAILED, EDITED_FILE.
    """
    recorded = repository.read(root).manifest
    if recorded is None or name not in recorded.endpoints:
        names = ", ".join(sorted(recorded.endpoints)) if recorded else ""
        raise TrbError(
            Code.PROMOTE_FAILED,
            f"trb built no endpoint '{name}' here",
            where=str(root),
            remedy=f"its endpoints: {names}" if names else "name a repository that trb built",
        )
    entry = recorded.endpoints[name]
    present, old = versions.present(root, entry.models), entry.served.version
    new = entry.previous if version is None else version
    if new is None or new not in present:
        others = [number for number in present if number != old]
        raise TrbError(
            Code.PROMOTE_FAILED,
            f"has no version {new}" if new else f"version {old} is the first that was served",
            where=f"{root}: {name}",
            remedy=f"promote one that is there: {', '.join(map(str, others))}"
            if others
            else "add one with trb build --version next",
        )
    if new == old:
        return None
    shared = {number: versions.stored(root, entry.models, number) for number in (old, new)}
    move = Move(
        root=root,
        name=name,
        models=entry.models,
        manifest=recorded,
        old=old,
        new=new,
        old_files=shared[old],
        new_files=shared[new],
    )
    _check(move, force)
    return move


def _check(move: Move, force: bool) -> None:
    for number, shared in ((move.old, move.old_files), (move.new, move.new_files)):
        missing = [model for model in move.models if f"{model}/{CONFIG}" not in shared]
        if missing:
            raise TrbError(
                Code.PROMOTE_FAILED,
                f"version {number} has no configuration of its own: no {missing[0]}/{number}/shared",
                where=f"{move.root}: {move.name}",
                remedy=f"build it again: trb build --name {move.name} --version {number} …",
            )
        for model in move.models:
            versions.read_config(move.root / model / str(number) / SHARED / CONFIG)
    recorded = move.manifest.files
    own = tuple(f"{model}/{move.new}/" for model in move.models)
    for path in sorted(path for path in recorded if path.startswith(own)):
        file = move.root / path
        if not file.is_file() or files.hash_file(file) != recorded[path].sha256:
            problem = "was changed" if file.is_file() else "is missing"
            raise TrbError(
                Code.PROMOTE_FAILED,
                f"version {move.new} is not as it was built: {path} {problem}",
                where=f"{move.root}: {move.name}",
                remedy="restore the file (git checkout, trb fetch), or build the version again",
            )
    edited = [
        path
        for path in move.old_files
        if (file := move.root / path).is_file() and path in recorded
        if files.hash_file(file) != recorded[path].sha256 and file.read_bytes() not in _halfway(move, path)
    ]
    if edited and not force:
        raise TrbError(
            Code.EDITED_FILE,
            f"changed since trb wrote it: {', '.join(edited[:5])}",
            where=str(move.root),
            remedy="keep your edit elsewhere, or replace it with --force",
        )


def _halfway(move: Move, path: str) -> list[bytes]:
    """Files that a killed promotion may have left."""
    return [
        versions.serving(shared, numbers)[path]
        for shared in (move.old_files, move.new_files)
        for numbers in ((move.old,), (move.new,), sorted((move.old, move.new)))
        if path in shared
    ]


def served(root: Path, name: str) -> int:
    """The version that the repository serves."""
    recorded = manifest.read(root) or Manifest()
    return recorded.endpoints[name].served.version


def check_server(root: Path, name: str, url: str) -> None:
    """``TrbError`` PROMOTE_FAILED if the server does not have the version that the repository serves."""
    version = served(root, name)
    listed = HttpClient(url, 10).served_versions(name)
    if str(version) not in listed:
        raise TrbError(
            Code.PROMOTE_FAILED,
            f"the repository serves version {version} already, the server {', '.join(listed)}",
            where=url,
            remedy=f"trb rollback {name}, then promote with --url in one step; or start the server again",
        )


def in_repository(move: Move) -> None:
    """Serve the new version from the next load on: the steps' files first, the manifest last."""
    for model in (*move.steps, move.name):
        write(move, model, move.new_files, (move.new,))
    manifest.write(move.root, promoted(move))


def write(move: Move, model: str, shared: Mapping[str, bytes], numbers: Iterable[int]) -> None:
    """Write a model's own files for these loaded versions; remove the other version's further files."""
    contents = {p: c for p, c in versions.serving(shared, numbers).items() if p.split("/")[0] == model}
    for path in {*move.old_files, *move.new_files} - {*contents}:
        if path.split("/")[0] == model:
            (move.root / path).unlink(missing_ok=True)
    for path, content in contents.items():
        if not (move.root / path).is_file() or (move.root / path).read_bytes() != content:
            files.write(move.root / path, content)


def promoted(move: Move) -> Manifest:
    """The manifest once the new version is served."""
    entry = move.manifest.endpoints[move.name]
    served = versions.serving(move.new_files, (move.new,)).items()
    records = {
        path: FileRecord(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
        for path, content in served
    }
    others = {path: record for path, record in move.manifest.files.items() if path not in move.old_files}
    return replace(
        move.manifest,
        endpoints={
            **move.manifest.endpoints,
            move.name: versions.arrange(entry.versions, move.new, move.old),
        },
        files={**others, **records},
    )
