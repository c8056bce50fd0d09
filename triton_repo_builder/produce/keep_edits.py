"""Accepted hand edits in a new build of the same endpoint: applied again, or the build stops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from triton_repo_builder.base import files, releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import File
from triton_repo_builder.endpoint.render import provenance
from triton_repo_builder.produce import check_files
from triton_repo_builder.produce.build import Build
from triton_repo_builder.produce.write import accepted, ownership
from triton_repo_builder.produce.write.accepted import Place
from triton_repo_builder.repository import CONFIG, Manifest, content, edits, manifest, pbtxt
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.edits import Conflict, Edit
from triton_repo_builder.repository.manifest import EndpointEntry, VersionEntry

DROP = (
    "build with --force, which drops the edit (--diff shows that); then edit the new file and trb accept it"
)


def keep(build: Build, output: Path, *, force: bool = False) -> Build:
    """The build with the edits that were accepted in the version it replaces, else in the served one.

    With ``force`` they are dropped, with a note. Raises ``TrbError`` EDITED_FILE for an edit that does not
    fit what this build writes, FAILED_CHECKS if the server would refuse the result; writes nothing.
    """
    recorded = manifest.read(output) if output.is_dir() else None
    endpoint = recorded.endpoints.get(build.name) if recorded else None
    old = endpoint.versions.get(build.version, endpoint.served) if endpoint else None
    if recorded is None or old is None or not old.edits:
        return build
    if force:
        dropped = [
            f"the {_what(edit)} {path} is dropped (--force): {edit}"
            for path, edit in sorted(old.edits.items())
        ]
        return replace(build, notes=(*build.notes, *dropped))
    return _Keeper(build, output, recorded, old).kept()


class _Keeper:
    """One build, and the version whose edits it keeps."""

    def __init__(self, build: Build, output: Path, recorded: Manifest, old: VersionEntry) -> None:
        self._build, self._output, self._recorded, self._old = build, output, recorded, old
        self._files = {file.path: file for file in build.files}
        self._places = {
            place.canonical: place
            for place in accepted.places(recorded, build.name)
            if place.entry.version == old.version
        }

    def kept(self) -> Build:
        """The build with all edits."""
        stay: dict[str, Edit] = {}
        notes = []
        for canonical, edit in sorted(self._old.edits.items()):
            path = accepted.renumbered(canonical, self._old.version, self._build.version)
            edited = self._edited(canonical, path, edit)
            fresh = self._files.get(path)
            if edited is None:
                gone = f"the accepted file {path} is there no more: it is no longer recorded"
                by_itself = f"this build writes the accepted edit of {path} by itself: it is no longer one"
                notes.append(gone if edit.added and fresh is None else by_itself)
                continue
            kept = edit
            if fresh is not None:  # a file of the build, edited
                base = content.unsealed(_bytes(fresh)) if path.endswith(f"/{CONFIG}") else _bytes(fresh)
                diff = edits.difference(base, edited)
                kept = Edit(built=fresh.sha256(), approvals=edit.approvals, diff=diff)
            stay[path] = kept
            self._files[path] = File(path=path, content=edited)
            notes.append(f"the {_what(edit)} {path} is kept: {edit}")
        return self._sealed(stay, notes)

    def _edited(self, canonical: str, path: str, edit: Edit) -> bytes | None:
        """The rendered content with an edit; None if the build writes that by itself."""
        fresh = self._files.get(path)
        if edit.added:
            return self._added(canonical, path, edit)
        if fresh is None:
            raise self._conflict(path, edit, "this build writes no such file")
        data = _bytes(fresh)
        rendered = content.unsealed(data) if path.endswith(f"/{CONFIG}") else data
        if edit.diff is None:
            place = self._places.get(canonical)
            if place is None or edit.built not in {accepted.sha256(form) for form in place.forms(data)}:
                raise self._conflict(
                    path,
                    edit,
                    "it was accepted without a diff from what trb built, and this build writes another file",
                    f"give it a diff: trb accept {self._output} --why REASON --model PATH, where PATH is the "
                    "model that it was built from; then build again (--force drops the edit)",
                )
            return place.rendered(self._on_disk(place))
        try:
            return edits.applied(edit.diff, rendered)
        except Conflict as conflict:
            try:
                edits.reverted(edit.diff, rendered)
            except Conflict:
                lines = "".join(f"\n  {line}" for line in conflict.lines)
                raise self._conflict(path, edit, f"it does not fit what this build writes:{lines}") from None
            return None

    def _added(self, canonical: str, path: str, edit: Edit) -> bytes | None:
        """The content of a file that somebody added; None if it is gone, or the build writes it by itself."""
        place, fresh = self._places.get(canonical), self._files.get(path)
        if place is None or not (self._output / place.path).is_file():
            return None
        data = self._on_disk(place)
        if fresh is not None and _bytes(fresh) != data:
            raise self._conflict(path, edit, "this build writes another file of that name")
        return None if fresh else data

    def _on_disk(self, place: Place) -> bytes:
        """The accepted content. Raises ``TrbError`` EDITED_FILE if it was edited since."""
        record, file = self._recorded.files[place.path], self._output / place.path
        if not ownership.same(record, record, file):
            raise ownership.edited_error([place.path], self._output, ownership.accept_remedy(self._output))
        return files.read(file)

    def _sealed(self, stay: dict[str, Edit], notes: list[str]) -> Build:
        entry = replace(self._build.entry.served, edits=stay)
        path = f"{self._build.name}/{CONFIG}"
        if path in stay:
            size = ModelConfig(pbtxt.parse(self._files[path].content.decode("utf-8"))).max_batch_size
            entry = replace(entry, endpoint=replace(entry.endpoint, max_batch_size=size))
        sealed, entry = provenance.seal(tuple(self._files.values()), entry)
        errors = [
            finding
            for finding in check_files.findings(sealed, releases.get(entry.triton_release))
            if finding.severity == "error"
        ]
        if errors:
            shown = "".join(f"\n  {each.where}: {each.message} [{each.code}]" for each in errors)
            raise TrbError(
                Code.FAILED_CHECKS,
                f"with the accepted edits of {', '.join(stay)} trb check finds errors:{shown}",
                where=self._build.name,
                remedy=f"nothing was written; {DROP}",
            )
        return replace(
            self._build,
            files=sealed,
            entry=EndpointEntry(served=entry),
            notes=(*self._build.notes, *notes),
        )

    def _conflict(self, path: str, edit: Edit, reason: str, remedy: str = DROP) -> TrbError:
        return TrbError(
            Code.EDITED_FILE,
            f"an accepted edit cannot be kept, nothing was written ({edit}): {reason}",
            where=str(self._output / path),
            remedy=remedy,
        )


def _what(edit: Edit) -> str:
    return "accepted file" if edit.added else "accepted edit of"


def _bytes(file: File) -> bytes:
    return files.read(file.source) if file.source else file.content
