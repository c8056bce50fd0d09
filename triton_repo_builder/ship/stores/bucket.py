"""A bucket as a store: one prefix per revision, then the pointer; fsspec does the transport.

    PREFIX/current.json              the pointer, written last: one object, so readers see the old or the new
    PREFIX/revisions/DIGEST.json     the index; there only when the revision is complete
    PREFIX/revisions/DIGEST/…        the repository, as Triton reads it
    PREFIX/revisions/DIGEST.KEY.sig  a signature of the revision, by one key
    PREFIX/revisions/DIGEST.removing its removal has begun; the index is removed first

The name of a revision is the digest of its content: nothing is ever written over something else, and an
interrupted push resumes.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import ClassVar

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import DAMAGED, load_json
from triton_repo_builder.repository import MANIFEST, Manifest
from triton_repo_builder.ship.stores import location, pointer, signature
from triton_repo_builder.ship.stores.failures import explained
from triton_repo_builder.ship.stores.location import Bucket
from triton_repo_builder.ship.stores.objects import Objects
from triton_repo_builder.ship.stores.pointer import Pointer
from triton_repo_builder.ship.stores.revision import (
    Entry,
    Index,
    LocalRevision,
    labels,
    read_index,
    write_verified,
)
from triton_repo_builder.ship.stores.signature import Subject, stated_key
from triton_repo_builder.ship.stores.signing_keys import Signer
from triton_repo_builder.ship.stores.store import Hints, Progress, Pulled, Pushed, Stored, overtaken

POINTER = "current.json"
REVISIONS = "revisions"
INDEX = re.compile(r"([0-9a-f]{64})\.json")
SIGNATURE = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{32})\.sig")


class BucketStore(Objects):
    """Revisions below one prefix of a bucket; subclasses add what is special to a kind of bucket."""

    SCHEME: ClassVar[str]
    """Scheme of the URLs, the same as fsspec's."""
    FORMS: ClassVar[str]
    HINTS: ClassVar[Hints]

    @classmethod
    def parse(cls, text: str, rest: str, revision: str) -> Bucket:
        return location.bucket(text, cls.SCHEME, rest, revision)

    def serve_from(self, target: Path, progress: Progress) -> str:
        """Empty: Triton reads only S3."""
        return ""

    def push(
        self,
        local: LocalRevision,
        progress: Progress,
        *,
        dry_run: bool = False,
        signer: Signer | None = None,
    ) -> Pushed:
        digest = local.index.digest
        with explained(self.HINTS, self._shown):
            previous = self._current_revision()
            if not dry_run and self._read(_removing(digest)) is not None:
                self._remove(_removing(digest))
            sent, copied = self._send(local, previous, progress, dry_run=dry_run)
            if not dry_run:
                self._write(_index(digest), local.index.document)
                if signer is not None:  # before it is current: who asks for signatures sees no gap
                    subject = Subject(revision=f"sha256:{digest}")
                    document = signature.sign(subject, local.index.entries, self, signer)
                    self._write(_signature(digest, signer.public.id), document)
                previous = self._move_pointer(local)
        return Pushed(
            location=self._shown,
            revision=f"sha256:{digest}",
            pinned=f"{self._shown}@sha256:{digest}",
            previous=f"sha256:{previous}" if previous else "",
            files=len(local.index.entries),
            bytes=local.index.bytes,
            sent=tuple(entry.path for entry in sent),
            sent_bytes=sum(entry.bytes for entry in sent),
            copied=tuple(entry.path for entry in copied),
            labels=dict(local.labels),
            signed_by=signer.public.fingerprint if signer else "",
            dry_run=dry_run,
        )

    def index(self) -> tuple[str, Index]:
        """Digest and files of the location's revision."""
        with explained(self.HINTS, self._shown):
            digest = self.location.revision or self._current_revision()
            if not digest:
                self.system.ls(self.location.bucket)  # fails if there is no bucket at all
                raise self._not_pushed("nothing was pushed here: there is no current.json")
            document = self._read(_index(digest))
            if document is None:
                raise self._not_pushed(f"there is no revision sha256:{digest}")
            return digest, read_index(document, digest, self._url(_index(digest)))

    def subject(self) -> Subject:
        return Subject(revision=f"sha256:{self.index()[0]}")

    def signature(self, subject: Subject, key: str) -> bytes | None:
        with explained(self.HINTS, self._shown):
            return self._read(_signature(subject.digest, key))

    def signers(self, subject: Subject) -> tuple[str, ...]:
        with explained(self.HINTS, self._shown):
            return self._signers(subject.digest, self._names(REVISIONS))

    def revisions(self) -> tuple[Stored, ...]:
        with explained(self.HINTS, self._shown):
            current = self._pointer()
            if current is None:
                raise self._not_pushed("nothing was pushed here: there is no current.json")
            names = self._names(REVISIONS)
            digests = [match[1] for name in names if (match := INDEX.fullmatch(name))]
            stored_revisions = [self._stored(digest, current, names) for digest in digests]
        return tuple(sorted(stored_revisions, key=lambda stored: stored.pushed, reverse=True))

    def remove(self, revision: str) -> bool:
        digest = revision.removeprefix("sha256:")
        with explained(self.HINTS, self._shown):
            current = self._pointer()
            if current is not None and digest in (current.revision, current.previous):
                return False
            names = self._names(REVISIONS)
            self._write(_removing(digest), b"trb push --prune\n")
            self._remove(_index(digest))
            for key in self._signers(digest, names):
                self._remove(_signature(digest, key))
            self._remove_below(f"{REVISIONS}/{digest}")
            self._remove(_removing(digest))
        return True

    def leftovers(self) -> tuple[str, ...]:
        with explained(self.HINTS, self._shown):
            names = self._names(REVISIONS)
        begun = (name.removesuffix(".removing") for name in names if name.endswith(".removing"))
        # One whose index is there was pushed again, or was hardly begun.
        return tuple(f"sha256:{digest}" for digest in begun if f"{digest}.json" not in names)

    def _signers(self, digest: str, names: list[str]) -> tuple[str, ...]:
        matches = (SIGNATURE.fullmatch(name) for name in names)
        return tuple(match[2] for match in matches if match and match[1] == digest)

    def _stored(self, digest: str, current: Pointer, names: list[str]) -> Stored:
        index = self._intact_index(digest)
        entries = index.entries if index else ()  # a damaged one is still listed
        documents = (self._read(_signature(digest, key)) or b"" for key in self._signers(digest, names))
        holds = {"current": current.revision, "previous": current.previous}
        return Stored(
            revision=f"sha256:{digest}",
            pushed=current.pushed.get(digest) or self._modified(_index(digest)),
            bytes=sum(entry.bytes for entry in entries),
            labels=self._labels(digest, entries),
            signed_by=tuple(stated_key(document) for document in documents),
            holds=tuple(name for name, held in holds.items() if held == digest),
        )

    def _labels(self, digest: str, entries: tuple[Entry, ...]) -> dict[str, str]:
        """Labels of a revision, from its manifest.json; empty if that is missing or damaged."""
        manifest_entry = next((entry for entry in entries if entry.path == MANIFEST), None)
        data = self._read(f"{REVISIONS}/{digest}/{MANIFEST}") if manifest_entry else None
        if (
            manifest_entry is None
            or data is None
            or hashlib.sha256(data).hexdigest() != manifest_entry.sha256
        ):
            return {}
        try:
            return labels(Manifest.of_json(load_json(data)))
        except DAMAGED:  # of another tool
            return {}

    def _modified(self, path: str) -> str:
        """When an object was written; empty if the library cannot say."""
        try:
            return str(self.system.modified(self._at(path)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
        except (NotImplementedError, FileNotFoundError, AttributeError):
            return ""

    def pull(self, target: Path, progress: Progress) -> Pulled:
        """Write the revision's files below ``target``, an empty folder, each verified."""
        digest, index = self.index()
        self.fetch(digest, index.entries, target, progress)
        return Pulled(
            location=self._shown,
            revision=f"sha256:{digest}",
            files=len(index.entries),
            bytes=index.bytes,
            target=str(target),
        )

    def fetch(self, digest: str, entries: tuple[Entry, ...], target: Path, progress: Progress) -> None:
        """Some files of a revision, verified."""
        done, total = 0, sum(entry.bytes for entry in entries)
        for entry in entries:
            path = f"{REVISIONS}/{digest}/{entry.path}"
            with explained(self.HINTS, self._url(path)):
                write_verified(target / entry.path, self._blocks(path), entry, self._url(path))
            done += entry.bytes
            progress(entry.path, done, total)

    def _send(
        self, local: LocalRevision, previous: str, progress: Progress, *, dry_run: bool
    ) -> tuple[list[Entry], list[Entry]]:
        """Files uploaded, and files copied within the bucket from the revision before."""
        sent: list[Entry] = []
        copied: list[Entry] = []
        done = 0
        before = self._paths(previous) if previous != local.index.digest else {}
        # A model's configuration after its files: nobody who reads the prefix early sees half a model.
        for entry in sorted(local.index.entries, key=lambda e: e.path.endswith("config.pbtxt")):
            path = f"{REVISIONS}/{local.index.digest}/{entry.path}"
            progress(entry.path, done, local.index.bytes)
            if self._whole(path, entry):
                pass
            elif entry.sha256 in before and self._copy(before[entry.sha256], path, entry, dry_run=dry_run):
                copied.append(entry)
            else:
                sent.append(entry)
                if not dry_run:
                    self._put(path, local.files[entry.path])
                    self._verify(path, entry)
            done += entry.bytes
        progress("", done, local.index.bytes)
        return sent, copied

    def _paths(self, digest: str) -> dict[str, str]:
        """Path of each digest in a revision; empty if its index is lost."""
        index = self._intact_index(digest) if digest else None
        entries = index.entries if index else ()
        return {entry.sha256: f"{REVISIONS}/{digest}/{entry.path}" for entry in entries}

    def _intact_index(self, digest: str) -> Index | None:
        """The files of a revision; None if its index is lost or damaged."""
        document = self._read(_index(digest))
        if document is None or hashlib.sha256(document).hexdigest() != digest:
            return None
        return read_index(document, digest, self._url(_index(digest)))

    def _copy(self, source: str, path: str, entry: Entry, *, dry_run: bool) -> bool:
        """Let the bucket copy; False if its file is missing or damaged."""
        if dry_run:
            return self._whole(source, entry)
        try:
            self.system.cp_file(self._at(source), self._at(path))
        except FileNotFoundError:
            return False
        return self._whole(path, entry)

    def _move_pointer(self, local: LocalRevision) -> str:
        """Move the pointer; returns its previous value, perhaps of another push since this one began."""
        digest, before = local.index.digest, self._pointer()
        if before is None or before.revision != digest:
            moved = before.moved(digest, local.labels) if before else pointer.first(digest, local.labels)
            self.system.pipe_file(self._at(POINTER), moved.document)
            now = self._current_revision()
            if now != digest:
                pinned = f"{self._shown}@sha256:{digest}"
                raise overtaken(self._shown, f"sha256:{now}" if now else "", pinned)
        return before.revision if before else ""

    def _pointer(self) -> Pointer | None:
        """The pointer; None if nothing was pushed."""
        document = self._read(POINTER)
        if document is None:
            return None
        pointer = Pointer.read(document)
        if pointer is None:
            raise TrbError(
                Code.NOT_PUSHED,
                "not a pointer that trb wrote",
                where=self._url(POINTER),
                remedy="choose another prefix, or remove that object",
            )
        return pointer

    def _current_revision(self) -> str:
        """Hex digest of the current revision; empty if there is none."""
        pointer = self._pointer()
        return pointer.revision if pointer else ""

    def _not_pushed(self, message: str) -> TrbError:
        return TrbError(
            Code.NOT_PUSHED, message, where=self._shown, remedy=f"push first: trb push {self._shown} REPO"
        )


def _index(digest: str) -> str:
    return f"{REVISIONS}/{digest}.json"


def _signature(digest: str, key: str) -> str:
    return f"{REVISIONS}/{digest}.{key}.sig"


def _removing(digest: str) -> str:
    return f"{REVISIONS}/{digest}.removing"
