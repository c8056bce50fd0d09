"""``trb accept``: what was edited by hand becomes part of the record, with who and why.

The manifest gets the file's digest and the diff from what was built; the version's content digest follows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from triton_repo_builder import check, repository
from triton_repo_builder.base import files, releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import File
from triton_repo_builder.produce import check_files
from triton_repo_builder.produce.write import accepted, versions
from triton_repo_builder.produce.write.accepted import Place
from triton_repo_builder.repository import (
    CONFIG,
    MANIFEST,
    SHARED,
    VERSION,
    Manifest,
    content,
    edits,
    integrity,
    manifest,
    pbtxt,
)
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.edits import Approval, Conflict, Edit
from triton_repo_builder.repository.interface import Endpoint
from triton_repo_builder.repository.journal import undo
from triton_repo_builder.repository.manifest import EndpointEntry, FileRecord, VersionEntry

Recover = Callable[[str, Callable[[bytes], bool]], bytes | None]
"""Finds the earlier content of a file that a function accepts, by the path in the repository."""
BACK = "put the file back (git checkout), or take that part out of the edit"


@dataclass(frozen=True, kw_only=True)
class HandEdit:
    """One edited file of a version."""

    places: tuple[Place, ...]
    """Paths of the file, one or two, that were edited."""
    data: bytes
    """The content as a build would render it."""
    edit: Edit | None
    """None: the file is again as it was built."""

    @property
    def path(self) -> str:
        return self.places[0].path


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Edits that can be accepted, and what is written then."""

    root: Path
    edits: tuple[HandEdit, ...]
    contents: Mapping[str, bytes]
    """Files that change, by path; the manifest is last."""


def prepare(root: Path, names: Sequence[str], approval: Approval, recover: Recover) -> Acceptance:
    """The edits of the files ``names`` (or folders; none: of all), and their record; writes nothing.

    Raises ``TrbError`` REPOSITORY_UNREADABLE, NOT_FOUND, FAILED_CHECKS, EDITED_FILE.
    """
    recorded = manifest.read(root)
    if recorded is None:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            "has no manifest.json of trb, so nothing records what was built",
            where=str(root),
            remedy="name a repository that trb build wrote",
        )
    altered = {each.path for each in integrity.altered(root, recorded.files) if not each.missing}
    altered |= _without_diff(root, recorded, recover)
    added = _added(root, recorded)
    chosen = _chosen(root, names, {*recorded.files, *added}, altered | {*added})
    recorded = _listing(root, recorded, {path: copies for path, copies in added.items() if path in chosen})
    altered |= chosen
    groups = _groups(recorded, altered, chosen, root)
    _refuse_errors(root, [places[0] for places in groups])
    if {*added} - chosen:
        _refuse_incomplete(root, recorded, groups)
    edited = _Edited(
        root=root, recorded=recorded, altered=frozenset(altered), added=frozenset(added), recover=recover
    )
    hand_edits = tuple(_hand_edit(edited, places, approval) for places in groups)
    contents, after = _contents(root, recorded, hand_edits)
    return Acceptance(root=root, edits=hand_edits, contents={**contents, MANIFEST: after.to_text().encode()})


def write(acceptance: Acceptance) -> None:
    """Write the record, and copies of the edited files: all or nothing. Raises ``TrbError``."""
    root, contents = acceptance.root, acceptance.contents
    changed = {
        path: data
        for path, data in contents.items()
        if not (root / path).is_file() or files.read(root / path) != data
    }
    with undo.undoable(root, {path: {data} for path, data in changed.items()}):
        for path, data in changed.items():
            files.write(root / path, data)


def _without_diff(root: Path, recorded: Manifest, recover: Recover) -> set[str]:
    """Edits that were accepted when what ``trb`` built could not be shown, and now it can."""
    paths = set()
    for place in (place for name in recorded.endpoints for place in accepted.places(recorded, name)):
        edit = place.entry.edits.get(place.canonical)
        if edit is not None and edit.diff is None and not edit.added and (root / place.path).is_file():
            built = recover(place.path, _is_recorded(place, edit.built))
            if edits.difference(built, files.read(root / place.path)) is not None:
                paths.add(place.path)
    return paths


def _added(root: Path, recorded: Manifest) -> dict[str, tuple[str, ...]]:
    """Files that somebody added to a version, each with its paths: one, or two beside other versions.

    Links are left out, and models that endpoints share: they are named by their content.
    """
    added: dict[str, tuple[str, ...]] = {}
    for endpoint in recorded.endpoints.values():
        entry = endpoint.served
        copied = {path.split("/")[0] for path in recorded.files if path.split("/")[1:3] == _own(entry)}
        for model in {*endpoint.models} - {*entry.shared}:
            for path in (each.path for each in integrity.added(root, recorded.files, model)):
                _, *rest = path.split("/")
                if (root / path).is_symlink() or rest[-1] == CONFIG or any(map(files.is_foreign, rest)):
                    continue
                if VERSION.fullmatch(rest[0]) and len(rest) > 1:
                    if int(rest[0]) in endpoint.versions and rest[:2] != _own(entry):
                        added[path] = (path,)
                elif model in copied:
                    added[path] = (path, "/".join((model, *_own(entry), *rest)))
                else:
                    added[path] = (path,)
    return added


def _own(entry: VersionEntry) -> list[str]:
    """The folder, in each model's, of a version's own copies."""
    return [str(entry.version), SHARED]


def _listing(root: Path, recorded: Manifest, added: Mapping[str, tuple[str, ...]]) -> Manifest:
    """The manifest with added files."""
    records = {
        copy: FileRecord(sha256=files.hash_file(root / path), bytes=(root / path).stat().st_size)
        for path, copies in added.items()
        for copy in copies
    }
    return replace(recorded, files={**recorded.files, **records})


def _chosen(root: Path, names: Sequence[str], paths: Collection[str], altered: Collection[str]) -> set[str]:
    """The edited and added files to accept."""
    chosen: set[str] = set()
    for name in names:
        below = [path for path in paths if path == name or path.startswith(f"{name}/")]
        if not below:
            raise TrbError(
                Code.NOT_FOUND,
                "trb wrote no such file, and none was added to an endpoint's own models",
                where=str(root / name),
                remedy="name a file that trb check reports as changed or added (manifest-extra)",
            )
        chosen |= {path for path in below if path in altered}
    return chosen if names else {*altered}


def _groups(
    recorded: Manifest, altered: Collection[str], chosen: Collection[str], root: Path
) -> list[tuple[Place, ...]]:
    """The places of each edited file, those that were edited first."""
    groups: dict[tuple[str, int, str], list[Place]] = {}
    for name in sorted(recorded.endpoints):
        for place in accepted.places(recorded, name):
            groups.setdefault((name, place.entry.version, place.canonical), []).append(place)
    edited = [
        tuple(sorted(group, key=lambda place: place.path not in altered))
        for group in groups.values()
        if any(place.path in chosen for place in group)
    ]
    versions_edited = {(group[0].endpoint, group[0].entry.version) for group in edited}
    for key, group in groups.items():
        rest = [place.path for place in group if place.path in altered and place.path.endswith(f"/{CONFIG}")]
        if rest and key[:2] in versions_edited and not any(place.path in chosen for place in group):
            raise _refusal(
                root / rest[0], "was edited, too, and one digest covers both", "accept both, or put it back"
            )
    return edited


def _refuse_errors(root: Path, places: Sequence[Place]) -> None:
    """Raise FAILED_CHECKS if the server would refuse the edited endpoints."""
    models = {model for place in places for model in place.entry.models}
    errors = [
        finding
        for finding in (check.built_findings(repository.read(root)) if places else ())
        if finding.severity == "error"
        and finding.model in models
        and not finding.code.startswith("manifest-")
    ]
    if errors:
        shown = "".join(f"\n  {each.where}: {each.message} [{each.code}]" for each in errors[:5])
        raise TrbError(
            Code.FAILED_CHECKS,
            f"trb check finds errors ({len(errors)}), nothing was accepted{shown}",
            where=str(root),
            remedy=f"see trb check {root}, correct the edit, then run the same command again",
        )


def _refuse_incomplete(root: Path, recorded: Manifest, groups: Sequence[tuple[Place, ...]]) -> None:
    """Raise FAILED_CHECKS if the accepted files need an added one that was not named with them."""
    for entry in {(place.endpoint, place.entry.version): place.entry for place, *_ in groups}.values():
        listed = [path for path in recorded.files if path.split("/")[0] in entry.models]
        staged = [File(path=path, source=root / path) for path in listed if (root / path).is_file()]
        findings = check_files.findings(staged, releases.get(entry.triton_release))
        for error in (each for each in findings if each.severity == "error"):
            raise TrbError(
                Code.FAILED_CHECKS,
                f"needs a file that trb did not write and that is not accepted with it: {error.message}",
                where=str(root / error.where),
                remedy="accept both: name the added file, too, or name no files at all",
            )


@dataclass(frozen=True, kw_only=True)
class _Edited:
    """A repository with edited files."""

    root: Path
    recorded: Manifest
    altered: frozenset[str]
    """Edited and added files."""
    added: frozenset[str]
    recover: Recover


def _hand_edit(edited: _Edited, group: tuple[Place, ...], approval: Approval) -> HandEdit:
    root, recorded = edited.root, edited.recorded
    places = tuple(place for place in group if place.path in edited.altered)
    place = places[0]
    before = place.entry.edits.get(place.canonical)
    if place.path in edited.added or (before and before.added):
        added = Edit(built="", approvals=_approvals(before, approval))
        return HandEdit(places=places, data=_read(root, place), edit=added)
    _refuse_unfit(root, recorded, place)
    try:
        data, *others = [each.rendered(files.read(root / each.path)) for each in places]
    except OSError as error:
        raise files.explain(error, root) from None
    if others and others[0] != data:
        raise _refusal(
            root / place.path,
            f"was edited, and its copy {places[1].path} in another way",
            "give both the same content, or put one of them back",
        )
    for each in places:
        if each.placed(data) != _unsealed(root, each):
            message = "sets version_policy or model_version, which trb sets itself beside other versions"
            raise _refusal(
                root / each.path, message, f"{BACK}; trb promote changes the version that is served"
            )
    _refuse_interface(root, recorded, place, data)
    built = before.built if before else recorded.files[place.path].sha256
    base = _base(edited, group)
    if base == data:
        return HandEdit(places=places, data=data, edit=None)
    edit = Edit(built=built, approvals=_approvals(before, approval), diff=edits.difference(base, data))
    return HandEdit(places=places, data=data, edit=edit)


def _approvals(before: Edit | None, approval: Approval) -> tuple[Approval, ...]:
    return (*(each for each in (before.approvals if before else ()) if each != approval), approval)


def _read(root: Path, place: Place) -> bytes:
    try:
        return files.read(root / place.path)
    except OSError as error:
        raise files.explain(error, root) from None


def _unsealed(root: Path, place: Place) -> bytes:
    """A file without content digest."""
    data = files.read(root / place.path)
    return content.unsealed(data) if place.path.endswith(f"/{CONFIG}") else data


def _refuse_unfit(root: Path, recorded: Manifest, place: Place) -> None:
    """Raise EDITED_FILE for a file whose edit could not be kept."""
    model, entry = place.path.split("/")[0], place.entry
    if model in entry.shared:
        raise _refusal(
            root / place.path,
            f"is part of '{model}', which several endpoints may share and which is named by its content",
            "build this endpoint by itself (without --all), so that it has a tokenizer of its own; edit that",
        )
    if recorded.files[place.path].sha256 in {source.sha256 for source in entry.sources}:
        raise _refusal(
            root / place.path,
            "is the model that provenance names, and now another one",
            "build the endpoint again from that file",
        )


def _refuse_interface(root: Path, recorded: Manifest, place: Place, data: bytes) -> None:
    """Raise EDITED_FILE if clients, or another version, would no longer fit the edited configuration."""
    if not place.path.endswith(f"/{CONFIG}"):
        return
    config = ModelConfig(pbtxt.parse(data.decode("utf-8")))
    if place.canonical == f"{place.endpoint}/{CONFIG}":
        old, new = place.entry.endpoint, Endpoint.of_config(place.endpoint, config)
        if {*old.inputs, *old.outputs} != {*new.inputs, *new.outputs}:
            message = "changes the endpoint's inputs or outputs, which its golden cases and clients use"
            raise _refusal(root / place.path, message, BACK)
    for other in accepted.places(recorded, place.endpoint):
        if other.canonical == place.canonical and other.entry.version != place.entry.version:
            field = versions.unlike(config, versions.read_config(root / other.path))
            if field:
                number = other.entry.version
                message = (
                    f"version {number} has another {field}, and all versions of a model share one {CONFIG}"
                )
                raise _refusal(root / place.path, message, BACK)


def _base(edited: _Edited, group: tuple[Place, ...]) -> bytes | None:
    """The content as ``trb`` built it, rendered; None if it cannot be recovered."""
    before = group[0].entry.edits.get(group[0].canonical)
    for place, data in _earlier(edited, group):
        if before is None:
            return place.rendered(data)
        if before.diff is not None:
            try:
                return edits.reverted(before.diff, place.rendered(data))
            except Conflict:
                continue
    built = edited.recover(group[0].path, _is_recorded(group[0], before.built)) if before else None
    return None if built is None else group[0].rendered(built)


def _earlier(edited: _Edited, group: tuple[Place, ...]) -> Iterator[tuple[Place, bytes]]:
    """The recorded content: of a copy that nobody edited, or recovered."""
    for place in group:
        record = edited.recorded.files[place.path]
        if place.path not in edited.altered:
            yield place, files.read(edited.root / place.path)
        elif data := edited.recover(place.path, _is_recorded(place, record.sha256)):
            yield place, data


def _is_recorded(place: Place, sha256: str) -> Callable[[bytes], bool]:
    """Whether a content has this digest, as it is or with the content digest that the manifest records."""

    def matches(data: bytes) -> bool:
        if accepted.sha256(data) == sha256:
            return True
        if place.canonical != f"{place.endpoint}/{CONFIG}":
            return False
        try:
            return accepted.sha256(content.sealed(data, place.entry.content)) == sha256
        except pbtxt.PbtxtError:
            return False

    return matches


def _contents(
    root: Path, recorded: Manifest, hand_edits: Sequence[HandEdit]
) -> tuple[dict[str, bytes], Manifest]:
    """Files that change, with new content digests, and the manifest that records them."""
    contents: dict[str, bytes] = {}
    touched: dict[tuple[str, int], VersionEntry] = {}
    for each in hand_edits:
        place = each.places[0]
        key = place.endpoint, place.entry.version
        entry = touched.get(key, place.entry)
        others = {path: edit for path, edit in entry.edits.items() if path != place.canonical}
        entry = replace(entry, edits={**others, place.canonical: each.edit} if each.edit else others)
        if place.canonical == f"{place.endpoint}/{CONFIG}":
            size = ModelConfig(pbtxt.parse(each.data.decode("utf-8"))).max_batch_size
            entry = replace(entry, endpoint=replace(entry.endpoint, max_batch_size=size))
        touched[key] = entry
        for copy in accepted.places(recorded, place.endpoint):
            if (copy.entry.version, copy.canonical) == (place.entry.version, place.canonical):
                contents[copy.path] = copy.placed(each.data)
    after = recorded
    for (name, version), entry in touched.items():
        changed = {path: accepted.sha256(data) for path, data in contents.items()}
        read = accepted.reader(root, contents)
        digest = accepted.content_digest(recorded, name, version, read, changed)
        for place in accepted.places(recorded, name):
            if (place.entry.version, place.canonical) == (version, f"{name}/{CONFIG}"):
                contents[place.path] = content.sealed(read(place.path), digest)
        endpoint = _with(after.endpoints[name], replace(entry, content=digest))
        after = replace(after, endpoints={**after.endpoints, name: endpoint})
    records = {
        path: FileRecord(sha256=accepted.sha256(data), bytes=len(data)) for path, data in contents.items()
    }
    return contents, replace(after, files={**recorded.files, **records})


def _with(endpoint: EndpointEntry, entry: VersionEntry) -> EndpointEntry:
    """The endpoint with another entry of one version."""
    if endpoint.served.version == entry.version:
        return replace(endpoint, served=entry)
    return replace(endpoint, others={**endpoint.others, entry.version: entry})


def _refusal(file: Path, message: str, remedy: str) -> TrbError:
    return TrbError(Code.EDITED_FILE, message, where=str(file), remedy=remedy)
