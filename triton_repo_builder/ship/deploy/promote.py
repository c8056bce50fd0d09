"""Serve another version of an endpoint, in the repository; ``live.py`` does it on a running server."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import some
from triton_repo_builder.produce.write import ownership, versions
from triton_repo_builder.repository import CONFIG, MANIFEST, SHARED, Manifest, integrity, manifest
from triton_repo_builder.repository.content import paths as paths_of
from triton_repo_builder.repository.integrity import NotAsBuilt
from triton_repo_builder.repository.journal import undo
from triton_repo_builder.repository.journal.undo import Keep
from triton_repo_builder.repository.manifest import FileRecord


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
    accepted: tuple[NotAsBuilt, ...] = ()
    """Files that are not as they were built, which --force lets pass."""

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
    old = entry.served.version
    present = [number for number in versions.present(root, entry.models) if number in entry.versions]
    new = entry.previous if version is None else version
    if new is None or new not in present:
        others = [number for number in present if number != old]
        raise TrbError(
            Code.PROMOTE_FAILED,
            f"has no version {new} that trb built" if new else f"version {old} is the first that was served",
            where=f"{root}: {name}",
            remedy=f"promote one that is there: {', '.join(map(str, others))}"
            if others
            else "add one with trb build --version next; to an earlier commit: trb apply COMMIT --url URL",
        )
    if new == old:
        _refuse_damage(root, recorded, name, new, force)
        return None
    move = between(root, recorded, name, new)
    return replace(move, accepted=_check(move, force))


def between(root: Path, recorded: Manifest, name: str, new: int) -> Move:
    """The move from the version that is served to another one that is there; nothing is checked."""
    entry = recorded.endpoints[name]
    old = entry.served.version
    shared = {number: versions.stored(root, entry.models, number) for number in (old, new)}
    return Move(
        root=root,
        name=name,
        models=entry.models,
        manifest=recorded,
        old=old,
        new=new,
        old_files=shared[old],
        new_files=shared[new],
    )


def _check(move: Move, force: bool) -> tuple[NotAsBuilt, ...]:
    """Files that are not as they were built; raises if there are any, unless ``force``."""
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
    altered = _refuse_damage(move.root, move.manifest, move.name, move.new, force)
    replaced = {path: recorded[path] for path in move.old_files if path in recorded}
    edited = tuple(file for file in integrity.altered(move.root, replaced) if not file.missing)
    if edited and not force:
        raise ownership.edited_error(
            [file.path for file in edited],
            move.root,
            ownership.accept_remedy(move.root),
        )
    return (*altered, *edited)


def _refuse_damage(
    root: Path, recorded: Manifest, name: str, version: int, force: bool
) -> tuple[NotAsBuilt, ...]:
    differences = damage(root, recorded, name, version)
    if differences and not force:
        raise TrbError(
            Code.PROMOTE_FAILED,
            f"version {version} is not as it was built: {some(differences, 5)}",
            where=f"{root}: {name}",
            remedy=f"record an edit of your own: trb accept {root} --why REASON; else restore the file (git "
            "checkout, trb fetch), build the version again, or let it pass with --force",
        )
    return differences


def damage(root: Path, recorded: Manifest, name: str, version: int) -> tuple[NotAsBuilt, ...]:
    """How a version is not as it was built; every file of it is read."""
    endpoint = recorded.endpoints[name]
    served = version == endpoint.served.version
    paths = paths_of(endpoint.versions[version], recorded.files, served=served).values()
    altered: tuple[NotAsBuilt, ...] = (
        *integrity.altered(root, {path: recorded.files[path] for path in paths}),
        *integrity.unlisted(root, recorded, endpoint.models, version),
    )
    return altered or tuple(integrity.disagreements(root, recorded, only=[(name, version)]))


@contextlib.contextmanager
def undoable(move: Move, *further: Mapping[str, bytes]) -> Iterator[Keep]:
    """Whatever is written inside stays as a whole, or is undone: also by the next command, after a kill.

    ``further`` are files in other forms than those that a promotion leaves.
    """
    contents: dict[str, set[bytes | None]] = {path: {None} for path in {*move.old_files, *move.new_files}}
    for shared in (move.old_files, move.new_files, *further):
        for numbers in ((move.old,), (move.new,), sorted((move.old, move.new))):
            for path, content in versions.serving(shared, numbers).items():
                contents[path].add(content)
    with undo.undoable(move.root, {**contents, MANIFEST: {promoted(move).to_text().encode()}}) as keep:
        yield keep


def in_repository(move: Move) -> None:
    """Serve the new version from the next load on: all of its files, or nothing changes."""
    with undoable(move):
        put(move, served(move, dict.fromkeys(move.models, (move.new_files, (move.new,)))))
        manifest.write(move.root, promoted(move))


def served(move: Move, models: Mapping[str, tuple[Mapping[str, bytes], Iterable[int]]]) -> dict[str, bytes]:
    """The files outside of version folders, for each model of one version and with these versions loaded."""
    return {
        path: content
        for model in (*move.steps, move.name)
        for path, content in versions.serving(*models[model]).items()
        if path.split("/")[0] == model
    }


def put(move: Move, contents: Mapping[str, bytes]) -> None:
    """Write these files, as far as they differ; remove what else the two versions have there."""
    for path in {*move.old_files, *move.new_files} - {*contents}:
        (move.root / path).unlink(missing_ok=True)
    for path, content in contents.items():
        if not (move.root / path).is_file() or files.read(move.root / path) != content:
            files.write(move.root / path, content)


def promoted(move: Move) -> Manifest:
    """The manifest once the new version is served."""
    entry = move.manifest.endpoints[move.name]
    records = {
        path: FileRecord(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
        for path, content in versions.serving(move.new_files, (move.new,)).items()
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
