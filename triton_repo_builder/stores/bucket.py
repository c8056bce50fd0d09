"""A bucket as a store: one prefix per revision, then the pointer; fsspec does the transport.

    PREFIX/current.json              the pointer, written last: one object, so readers see the old or the new
    PREFIX/revisions/DIGEST.json     the index; there only when the revision is complete
    PREFIX/revisions/DIGEST/…        the repository, as Triton reads it

The name of a revision is the digest of its content: nothing is ever written over something else, and an
interrupted push resumes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from triton_repo_builder import files, transfer
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.files import File
from triton_repo_builder.stores import filesystem, location
from triton_repo_builder.stores.failures import explained
from triton_repo_builder.stores.location import Bucket
from triton_repo_builder.stores.revision import (
    DIGEST,
    Entry,
    Index,
    LocalRevision,
    mismatch,
    read_index,
    write_verified,
)
from triton_repo_builder.stores.store import Hints, Progress, Pulled, Pushed, overtaken

POINTER = "current.json"
REVISIONS = "revisions"


class BucketStore:
    """Revisions below one prefix of a bucket; what differs between the kinds of buckets is in subclasses."""

    SCHEME: ClassVar[str]
    """The scheme, also fsspec's."""
    FORMS: ClassVar[str]
    HINTS: ClassVar[Hints]

    def __init__(self, location: Bucket, system: Any = None) -> None:
        self.location = location
        self._system = system
        self._shown = str(location).partition("@")[0]

    @classmethod
    def parse(cls, text: str, rest: str, revision: str) -> Bucket:
        return location.bucket(text, cls.SCHEME, rest, revision)

    def options(self) -> dict[str, Any]:
        return {}

    @property
    def system(self) -> Any:
        """The file system, connected when it is first needed."""
        if self._system is None:
            url = f"{self.location.scheme}://{self.location.bucket}"
            # A cached listing would hide another user's push.
            fresh = {"skip_instance_cache": True, "use_listings_cache": False}
            with explained(self.HINTS, str(self.location)):
                self._system, _ = filesystem.connect(url, str(self.location), **fresh, **self.options())
        return self._system

    def serve_from(self, target: Path, progress: Progress) -> str:
        """Empty: Triton reads only S3."""
        return ""

    def push(self, local: LocalRevision, progress: Progress, *, dry_run: bool = False) -> Pushed:
        digest = local.index.digest
        with explained(self.HINTS, self._shown):
            previous = self._current_revision()
            sent, copied = self._send(local, previous, progress, dry_run=dry_run)
            if not dry_run:
                self._write(f"{REVISIONS}/{digest}.json", local.index.document)
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
            dry_run=dry_run,
        )

    def index(self) -> tuple[str, Index]:
        """Digest and files of the location's revision."""
        with explained(self.HINTS, self._shown):
            digest = self.location.revision or self._current_revision()
            if not digest:
                self.system.ls(self.location.bucket)  # fails if there is no bucket at all
                raise self._not_pushed("nothing was pushed here: there is no current.json")
            document = self._read(f"{REVISIONS}/{digest}.json")
            if document is None:
                raise self._not_pushed(f"there is no revision sha256:{digest}")
            return digest, read_index(document, digest, self._url(f"{REVISIONS}/{digest}.json"))

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
        document = self._read(f"{REVISIONS}/{digest}.json") if digest else None
        if document is None or hashlib.sha256(document).hexdigest() != digest:
            return {}
        index = read_index(document, digest, self._url(f"{REVISIONS}/{digest}.json"))
        return {entry.sha256: f"{REVISIONS}/{digest}/{entry.path}" for entry in index.entries}

    def _copy(self, source: str, path: str, entry: Entry, *, dry_run: bool) -> bool:
        """Let the bucket copy; False if its file is missing or damaged."""
        if dry_run:
            return self._whole(source, entry)
        try:
            self.system.cp_file(self._at(source), self._at(path))
        except FileNotFoundError:
            return False
        return self._whole(path, entry)

    def _whole(self, path: str, entry: Entry) -> bool:
        """Whether exactly this file is stored: it is read back, as a size alone proves nothing."""
        try:
            size = self.system.info(self._at(path))["size"]
        except FileNotFoundError:
            return False
        return size == entry.bytes and self._hash(path) == entry.sha256

    def _verify(self, path: str, entry: Entry) -> None:
        actual = self._hash(path)
        if actual != entry.sha256:
            raise mismatch(self._url(path), actual, entry.sha256)

    def _put(self, path: str, file: File) -> None:
        if file.source is None:
            self.system.pipe_file(self._at(path), file.content)
        else:
            self.system.put_file(str(file.source), self._at(path))

    def _hash(self, path: str) -> str:
        return transfer.digest(self._blocks(path))

    def _blocks(self, path: str) -> Iterator[bytes]:
        return filesystem.blocks(self.system, self._at(path))

    def _read(self, path: str) -> bytes | None:
        try:
            data: bytes = self.system.cat_file(self._at(path))
        except FileNotFoundError:
            return None
        return data

    def _write(self, path: str, data: bytes) -> None:
        """Write one small object, and read it back."""
        if self._read(path) == data:
            return
        self.system.pipe_file(self._at(path), data)
        arrived = self._read(path) or b""
        if arrived != data:
            actual, expected = (hashlib.sha256(blob).hexdigest() for blob in (arrived, data))
            raise mismatch(self._url(path), actual, expected)

    def _move_pointer(self, local: LocalRevision) -> str:
        """Move the pointer; returns its previous value: another push may have moved it since ours began."""
        digest, before = local.index.digest, self._current_revision()
        if before != digest:
            self.system.pipe_file(self._at(POINTER), _pointer(local, before))
            now = self._current_revision()
            if now != digest:
                pinned = f"{self._shown}@sha256:{digest}"
                raise overtaken(self._shown, f"sha256:{now}" if now else "", pinned)
        return before

    def _current_revision(self) -> str:
        """Hex digest of the current revision; empty if there is none."""
        document = self._read(POINTER)
        if document is None:
            return ""
        try:
            match = DIGEST.fullmatch(files.load_json(document)["revision"])
        except files.DAMAGED:
            match = None
        if match is None:
            raise TrbError(
                Code.NOT_PUSHED,
                "not a pointer that trb wrote",
                where=self._url(POINTER),
                remedy="choose another prefix, or remove that object",
            )
        return match[1]

    def _at(self, path: str) -> str:
        return f"{self.location.root}/{path}"

    def _url(self, path: str) -> str:
        return f"{self._shown}/{path}"

    def _not_pushed(self, message: str) -> TrbError:
        return TrbError(
            Code.NOT_PUSHED, message, where=self._shown, remedy=f"push first: trb push {self._shown} REPO"
        )


def _pointer(local: LocalRevision, previous: str) -> bytes:
    digest = local.index.digest
    document = {
        "schema": 1,
        "revision": f"sha256:{digest}",
        "path": f"{REVISIONS}/{digest}",
        "previous": f"sha256:{previous}" if previous else None,
        "labels": dict(local.labels),
    }
    return f"{json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)}\n".encode()
