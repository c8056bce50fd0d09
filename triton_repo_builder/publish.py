"""Puts a build into a repository directory, or shows what that would change."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
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
    """Directories to swap, in order; None of them in ``files`` means removal."""
    changes: Changes


def prepare(made: Build, output: Path, *, force: bool = False) -> Publication:
    """Compare with what is there. Raises ``TrbError`` OUTPUT_NOT_OURS, EDITED_FILE, OUTPUT_NOT_WRITABLE."""
    try:
        old = _old(output)
        mine = set(old["endpoints"].get(made.name, {}).get("models", []))
        planned = [model.name for model in made.plan.models]
        _check_ours(made, old, mine, output)
        recorded: dict[str, Any] = {p: f for p, f in old["files"].items() if p.split("/")[0] in mine}
        present = _present(output, sorted(mine))
        edited = _edited(made, recorded, present, output)
    except OSError as error:
        raise files.explain(error, output) from error
    if edited and not force:
        listed = ", ".join(edited[:5]) + (f" and {len(edited) - 5} more" if len(edited) > 5 else "")
        raise TrbError(
            Exit.EDITED_FILE,
            f"changed since trb wrote it: {listed}",
            where=str(output),
            remedy="keep your edit elsewhere (or see it with --diff) and build with --force",
        )
    new = {file.path: file for file in made.files}
    kept = [
        path for path in present if path not in new and _keep(path, recorded, made.plan.version, set(planned))
    ]
    described = {path: {"sha256": file.sha256(), "bytes": file.size()} for path, file in new.items()}
    others = {
        path: fact for path, fact in old["files"].items() if path in kept or path.split("/")[0] not in mine
    }
    manifest = build.manifest({**old["endpoints"], made.name: made.entry}, {**others, **described})
    gone = sorted(mine - set(planned))
    changes = Changes(
        added=tuple(sorted(path for path in new if path not in present)),
        changed=tuple(
            sorted(
                p for p, f in described.items() if p in present and not _same(f, recorded.get(p), output / p)
            )
        ),
        removed=tuple(sorted(path for path in present if path not in new and path not in kept)),
        kept=tuple(sorted(kept)),
        edited=tuple(edited),
        notes=_replaced(made, old, kept, force),
    )
    # The tokenizer and the model first, the ensemble that needs them after, the manifest last.
    names = (*reversed(planned), *gone, repository.MANIFEST)
    return Publication(output=output, files=made.files, manifest=manifest, names=names, changes=changes)


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
            files.put(file, stage)
        for path in publication.changes.kept:
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
        owner = next(
            (name for name, entry in old["endpoints"].items() if model.name in entry["models"]), None
        )
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
