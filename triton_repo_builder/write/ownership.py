"""Which directories of a repository belong to which endpoint, and what in them is the user's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder import files, repository
from triton_repo_builder.build.build import Build
from triton_repo_builder.errors import Code, TrbError


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What one build does to the directories that are its own, or become its own."""

    made: Build
    mine: frozenset[str]
    recorded: Mapping[str, Any]
    """What the manifest says of the files in ``mine``."""
    kept: tuple[str, ...]
    present: Mapping[str, Path]
    edited: tuple[str, ...]
    notes: tuple[str, ...]


def claim(
    made: Build, old: Mapping[str, Any], taken: Mapping[str, str], built: set[str], output: Path, force: bool
) -> Claim:
    """What a build would do to what is there. Raises ``TrbError`` OUTPUT_FOREIGN, EDITED_FILE, BAD_NAME."""
    planned = {model.name for model in made.plan.models}
    _check_unique(made, taken)
    mine = set(old["endpoints"].get(made.name, {}).get("models", []))
    _check_ours(made, old, mine, output)
    # What others still need stays as it is; what they share with this build is also this build's.
    needed = {m for name, e in old["endpoints"].items() if name not in built for m in e["models"]}
    mine = (mine - needed) | {name for name in made.plan.shared if (output / name).exists()}
    recorded: dict[str, Any] = {p: f for p, f in old["files"].items() if p.split("/")[0] in mine}
    found = present(output, sorted(mine))
    edited = _edited(made, recorded, found, output)
    if edited and not force:
        remedy = "keep your edit elsewhere (or see it with --diff) and build with --force"
        raise edited_error(edited, output, remedy)
    new = {file.path for file in made.files}
    kept = [path for path in found if path not in new and _keep(path, recorded, made.plan.version, planned)]
    return Claim(
        made=made,
        mine=frozenset(mine),
        recorded=recorded,
        kept=tuple(kept),
        present=found,
        edited=tuple(edited),
        notes=_replaced(made, old, kept, force),
    )


def previous(output: Path) -> Mapping[str, Any]:
    """The manifest of the repository; an empty one for a new folder. Raises ``TrbError`` OUTPUT_FOREIGN."""
    empty: Mapping[str, Any] = {"endpoints": {}, "files": {}}
    if not output.exists():
        return empty
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
    return empty


def _check_unique(made: Build, taken: Mapping[str, str]) -> None:
    """Two endpoints of one run may share a tokenizer model, and no other directory."""
    for model in made.plan.models:
        if model.name in taken and model.name not in made.plan.shared:
            raise TrbError(
                Code.BAD_NAME,
                f"its directory '{model.name}' is also one of the endpoint '{taken[model.name]}'",
                where=made.name,
                remedy="give one of them another name: name = ... in the [build] table of its trb.toml",
            )


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
            Code.OUTPUT_FOREIGN,
            f"the directory {whose}; nothing was touched",
            where=str(output / model.name),
            remedy="choose another name with --name, or move it away",
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
            Code.OUTPUT_FOREIGN,
            f"version {listed} has other inputs, outputs or steps, and all versions share one config.pbtxt",
            where=made.name,
            remedy="build it under another --name, or with --force if the older versions need not be served",
        )
    was, now = (entry["sources"][0] for entry in (before, made.entry))
    if was["sha256"] == now["sha256"] or before.get("version") != made.plan.version:
        return ()
    models = " → ".join(f"{source['file']} {source['sha256'][:12]}" for source in (was, now))
    return (f"the endpoint '{made.name}' was built from another model, which this replaces ({models})",)


def present(output: Path, models: list[str]) -> dict[str, Path]:
    """Every file in these models' directories, by its path in the repository."""
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


def same(fact: Mapping[str, Any], old: Mapping[str, Any] | None, file: Path) -> bool:
    """Whether the file has the bytes that ``fact`` tells of."""
    if not file.is_file() or (old is not None and fact["sha256"] != old["sha256"]):
        return False
    return bool(file.stat().st_size == fact["bytes"]) and files.hash_file(file) == fact["sha256"]


def edited_error(edited: Sequence[str], output: Path, remedy: str) -> TrbError:
    """Files that were changed since ``trb`` wrote them."""
    listed = ", ".join(edited[:5]) + (f" and {len(edited) - 5} more" if len(edited) > 5 else "")
    return TrbError(
        Code.EDITED_FILE, f"changed since trb wrote it: {listed}", where=str(output), remedy=remedy
    )
