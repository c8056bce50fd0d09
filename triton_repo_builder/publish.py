"""Puts a build into a repository directory, or shows what that would change."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder import build, files, repository
from triton_repo_builder.build import Build
from triton_repo_builder.errors import Exit, TrbError
from triton_repo_builder.files import File

TEXT = (".pbtxt", ".json", ".txt", ".py")
DIFFED = 256 * 1024
"""Larger files are compared by checksum only."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What publishing does to the directory, by path within it."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    """The user's own files, and other versions, in the directories that are replaced."""
    edited: tuple[str, ...] = ()
    """Files that were changed since ``trb`` wrote them: a build refuses without ``force``."""
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """A build set against a repository directory, found fit to be written by ``prepare``."""

    output: Path
    files: tuple[File, ...]
    """All that ``trb`` writes into the replaced directories; ``changes.kept`` join them."""
    manifest: str
    names: tuple[str, ...]
    """Directories to swap, in order; none of them in ``files`` means removal."""
    changes: Changes


@dataclass(frozen=True, kw_only=True)
class _Claim:
    """What one build does to the directories that are its own, or become its own."""

    made: Build
    mine: frozenset[str]
    recorded: Mapping[str, Any]
    """What the manifest says of the files in ``mine``."""
    kept: tuple[str, ...]
    present: Mapping[str, Path]
    edited: tuple[str, ...]
    notes: tuple[str, ...]


def prepare(made: Build, output: Path, *, force: bool = False) -> Publication:
    """Compare with what is there. Raises ``TrbError`` OUTPUT_NOT_OURS, EDITED_FILE, OUTPUT_NOT_WRITABLE."""
    return prepare_all((made,), output, force=force)


def prepare_all(
    builds: Sequence[Build],
    output: Path,
    *,
    force: bool = False,
    refused: Callable[[Build, TrbError], None] | None = None,
) -> Publication:
    """Several endpoints as one change. ``refused`` gets those that cannot be written, else that raises."""
    claims: list[_Claim] = []
    taken: dict[str, str] = {}
    built = {made.name for made in builds}
    try:
        old = _old(output)
        for made in builds:
            try:
                claims.append(_claim(made, old, taken, built, output, force))
            except TrbError as error:
                if refused is None:
                    raise
                refused(made, error)
                continue
            taken |= {model.name: made.name for model in made.plan.models if model.name not in taken}
        if len(claims) < len(builds):
            # One that stays as it was may need what the others would give up.
            return prepare_all([claim.made for claim in claims], output, force=force, refused=refused)
        return _publication(claims, old, output)
    except OSError as error:
        raise files.explain(error, output) from error


def _claim(
    made: Build, old: Mapping[str, Any], taken: Mapping[str, str], built: set[str], output: Path, force: bool
) -> _Claim:
    planned = {model.name for model in made.plan.models}
    _check_unique(made, taken)
    mine = set(old["endpoints"].get(made.name, {}).get("models", []))
    _check_ours(made, old, mine, output)
    # What others still need stays as it is; what they share with this build is also this build's.
    needed = {m for name, e in old["endpoints"].items() if name not in built for m in e["models"]}
    mine = (mine - needed) | {name for name in made.plan.shared if (output / name).exists()}
    recorded: dict[str, Any] = {p: f for p, f in old["files"].items() if p.split("/")[0] in mine}
    present = _present(output, sorted(mine))
    edited = _edited(made, recorded, present, output)
    if edited and not force:
        listed = ", ".join(edited[:5]) + (f" and {len(edited) - 5} more" if len(edited) > 5 else "")
        raise TrbError(
            Exit.EDITED_FILE,
            f"changed since trb wrote it: {listed}",
            where=str(output),
            remedy="keep your edit elsewhere (or see it with --diff) and build with --force",
        )
    new = {file.path for file in made.files}
    kept = [path for path in present if path not in new and _keep(path, recorded, made.plan.version, planned)]
    return _Claim(
        made=made,
        mine=frozenset(mine),
        recorded=recorded,
        kept=tuple(kept),
        present=present,
        edited=tuple(edited),
        notes=_replaced(made, old, kept, force),
    )


def _publication(claims: Sequence[_Claim], old: Mapping[str, Any], output: Path) -> Publication:
    """The claims of all builds as one change; a directory that several share counts once."""
    new = {file.path: file for claim in claims for file in claim.made.files}
    present = {path: file for claim in claims for path, file in claim.present.items()}
    recorded = {path: fact for claim in claims for path, fact in claim.recorded.items()}
    planned = {model.name for claim in claims for model in claim.made.plan.models}
    mine = {name for claim in claims for name in claim.mine}
    # A tokenizer of its own that one build gives up may be one that another takes up.
    kept = {path for claim in claims for path in claim.kept if path not in new}
    described = {path: {"sha256": file.sha256(), "bytes": file.size()} for path, file in new.items()}
    others = {
        path: fact for path, fact in old["files"].items() if path in kept or path.split("/")[0] not in mine
    }
    entries = {claim.made.name: claim.made.entry for claim in claims}
    changes = Changes(
        added=tuple(sorted(path for path in new if path not in present)),
        changed=tuple(
            sorted(
                p for p, f in described.items() if p in present and not _same(f, recorded.get(p), output / p)
            )
        ),
        removed=tuple(sorted(path for path in present if path not in new and path not in kept)),
        kept=tuple(sorted(kept)),
        edited=tuple(sorted({path for claim in claims for path in claim.edited})),
        notes=tuple(note for claim in claims for note in claim.notes),
    )
    names = _swapped(claims, changes)
    return Publication(
        output=output,
        files=tuple(new.values()),
        manifest=build.manifest({**old["endpoints"], **entries}, {**others, **described}),
        names=(*names, *sorted(mine - planned), repository.MANIFEST),
        changes=changes,
    )


def _swapped(claims: Sequence[_Claim], changes: Changes) -> tuple[str, ...]:
    """Directories of the endpoints that change: the tokenizer and the model first, the ensemble after.

    What is shared and stays the same stays in place, for other endpoints use it, too.
    """
    touched = {path.split("/")[0] for path in (*changes.added, *changes.changed, *changes.removed)}
    swapped: dict[str, None] = {}
    for claim in claims:
        names = [model.name for model in reversed(claim.made.plan.models)]
        if touched & {*names, *claim.mine}:
            kept = {name for name in claim.made.plan.shared if name not in touched}
            swapped |= dict.fromkeys(name for name in names if name not in kept)
    return tuple(swapped)


def _check_unique(made: Build, taken: Mapping[str, str]) -> None:
    """Two endpoints of one run may share a tokenizer model, and no other directory."""
    for model in made.plan.models:
        if model.name in taken and model.name not in made.plan.shared:
            raise TrbError(
                Exit.BAD_NAME,
                f"its directory '{model.name}' is also one of the endpoint '{taken[model.name]}'",
                where=made.name,
                remedy="give one of them another name: name = ... in the [build] table of its trb.toml",
            )


def _replaced(made: Build, old: Mapping[str, Any], kept: list[str], force: bool) -> tuple[str, ...]:
    """A note where another model goes; ``TrbError`` where its other versions could not be served any more.

    All versions of a model share one config.pbtxt: they must have the same inputs and outputs.
    """
    before = old["endpoints"].get(made.name)
    if before is None:
        return ()
    others = sorted(
        {version for path in kept if (version := _version(path)) not in (None, made.plan.version)}
    )
    face = ("task", "inputs", "outputs", "models")
    if others and any(before.get(key) != made.entry[key] for key in face) and not force:
        listed = ", ".join(map(str, others))
        raise TrbError(
            Exit.OUTPUT_NOT_OURS,
            f"version {listed} has other inputs, outputs or steps, and all versions share one config.pbtxt",
            where=made.name,
            remedy="build it under another --name, or with --force if the older versions need not be served",
        )
    was, now = (entry["sources"][0] for entry in (before, made.entry))
    if was["sha256"] == now["sha256"] or before.get("version") != made.plan.version:
        return ()
    models = " → ".join(f"{source['file']} {source['sha256'][:12]}" for source in (was, now))
    return (f"the endpoint '{made.name}' was built from another model, which this replaces ({models})",)


def publish(publication: Publication) -> None:
    """Write it: all or nothing. Where nothing changes nothing is touched, or a server would reload it."""
    output = publication.output
    current = output / repository.MANIFEST
    if (
        not publication.changes
        and current.is_file()
        and current.read_text(encoding="utf-8") == publication.manifest
    ):
        return
    with files.staging(output) as stage:
        for file in publication.files:
            if file.path.split("/")[0] in publication.names:
                files.put(file, stage)
        for path in publication.changes.kept:
            if path.split("/")[0] in publication.names:
                files.keep(output / path, stage / path)
        (stage / repository.MANIFEST).write_text(publication.manifest, encoding="utf-8")
        files.swap(stage, output, publication.names)


def _old(output: Path) -> Mapping[str, Any]:
    empty: Mapping[str, Any] = {"endpoints": {}, "files": {}}
    if not output.exists():
        return empty
    if not output.is_dir():
        raise TrbError(
            Exit.OUTPUT_NOT_OURS,
            "is a file, not a folder",
            where=str(output),
            remedy="choose another folder with --output",
        )
    manifest = repository.read_manifest(output)
    if manifest is not None:
        return manifest
    if any(output.iterdir()):
        raise TrbError(
            Exit.OUTPUT_NOT_OURS,
            "holds files but no manifest.json of trb; nothing was touched",
            where=str(output),
            remedy="choose an empty or a new folder with --output",
        )
    return empty


def _check_ours(made: Build, old: Mapping[str, Any], mine: set[str], output: Path) -> None:
    """No directory that the build replaces may belong to another endpoint or to the user."""
    for model in made.plan.models:
        if model.name in mine or not (output / model.name).exists():
            continue
        owners = [name for name, entry in old["endpoints"].items() if model.name in entry["models"]]
        if owners and model.name in made.plan.shared:
            continue  # called by its content, so it is theirs and ours
        owner = next(iter(owners), None)
        whose = f"belongs to the endpoint '{owner}'" if owner else "was not written by trb"
        raise TrbError(
            Exit.OUTPUT_NOT_OURS,
            f"the directory {whose}; nothing was touched",
            where=str(output / model.name),
            remedy="choose another name with --name, or move it away",
        )


def _present(output: Path, models: list[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name in models:
        for path in sorted((output / name).rglob("*")):
            # Links are files too, and broken ones: what is not found here is lost.
            if (path.is_file() or path.is_symlink()) and "__pycache__" not in path.parts:
                found[path.relative_to(output).as_posix()] = path
    return found


def _edited(made: Build, recorded: Mapping[str, Any], present: Mapping[str, Path], output: Path) -> list[str]:
    """Files whose bytes are no longer those that trb wrote, and that the build would replace or drop."""
    sources = {file.path: file.source for file in made.files}
    edited = []
    for path, fact in recorded.items():
        file = present.get(path)
        if file is None or not file.is_file():
            continue
        source = sources.get(path)
        if source is not None and source.exists() and file.samefile(source):
            continue  # a hard link to the very file we would write: the user's model, not an edit
        if _version(path) not in (None, made.plan.version):
            continue  # another version stays as it is, edited or not
        if file.stat().st_size != fact["bytes"] or files.hash_file(file) != fact["sha256"]:
            edited.append(path)
    return edited


def _version(path: str) -> int | None:
    parts = path.split("/")
    return int(parts[1]) if len(parts) > 2 and repository.VERSION.fullmatch(parts[1]) else None


def _keep(path: str, recorded: Mapping[str, Any], version: int, planned: set[str]) -> bool:
    """The user's own files stay, and so do other versions of a model that still exists."""
    if path not in recorded:
        return True
    return path.split("/")[0] in planned and _version(path) not in (None, version)


def _same(fact: Mapping[str, Any], old: Mapping[str, Any] | None, file: Path) -> bool:
    if not file.is_file() or (old is not None and fact["sha256"] != old["sha256"]):
        return False
    return bool(file.stat().st_size == fact["bytes"]) and files.hash_file(file) == fact["sha256"]


def diff(publication: Publication) -> str:
    """A unified diff of the text files, one line for each other file; empty where nothing changes."""
    lines: list[str] = []
    new = {file.path: file for file in publication.files}
    for path in (*publication.changes.added, *publication.changes.changed, *publication.changes.removed):
        before = publication.output / path if path not in publication.changes.added else None
        lines += _diff_one(path, before, new.get(path))
    return "".join(lines)


def _diff_one(path: str, before: Path | None, after: File | None) -> list[str]:
    sizes = [before.stat().st_size if before else 0, after.size() if after else 0]
    if not path.endswith(TEXT) or max(sizes) > DIFFED or "/vendor/" in path:
        what = "added" if before is None else "removed" if after is None else "changed"
        return [f"{what}: {path} ({sizes[1] if after else sizes[0]:,} bytes)\n"]
    content = (after.source.read_bytes() if after.source else after.content) if after else b""
    old, fresh = (
        text.decode("utf-8", "replace").splitlines(keepends=True)
        for text in (before.read_bytes() if before else b"", content)
    )
    names = (path if before else "/dev/null", path if after else "/dev/null")
    return [line if line.endswith("\n") else line + "\n" for line in difflib.unified_diff(old, fresh, *names)]
