"""A bucket as a store: one prefix per revision, then the pointer; fsspec does the transport.

    PREFIX/current.json              the pointer, written last: one object, so readers see the old or the new
    PREFIX/revisions/DIGEST.json     the index; there only when the revision is complete
    PREFIX/revisions/DIGEST/…        the repository, as Triton reads it

The name of a revision is the digest of its content: nothing is ever written over something else, and an
interrupted push goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.files import File
from triton_repo_builder.stores.failures import explained, quiet
from triton_repo_builder.stores.location import DIGEST, Bucket
from triton_repo_builder.stores.revision import (
    Content,
    Entry,
    Index,
    materialise,
    mismatch,
    read_index,
)
from triton_repo_builder.stores.store import (
    Progress,
    Pulled,
    Pushed,
    overtaken,
)

POINTER = "current.json"
REVISIONS = "revisions"
BLOCK = 8 << 20
PROTOCOLS = {"s3": ("s3", "s3fs"), "gs": ("gs", "gcsfs"), "az": ("abfs", "adlfs")}


def connect(location: Bucket) -> Any:
    """The file system of a bucket; credentials come from where its library looks."""
    protocol, module = PROTOCOLS[location.scheme]
    try:
        import fsspec

        quiet()
        options: dict[str, Any] = {"endpoint_url": location.endpoint} if location.endpoint else {}
        # A listing that is remembered would hide what somebody else pushed meanwhile.
        return fsspec.filesystem(protocol, skip_instance_cache=True, use_listings_cache=False, **options)
    except ImportError:
        raise TrbError(
            Code.CLIENT_MISSING,
            f"{location.scheme}:// needs {module}, which is not installed",
            where=str(location),
            remedy="pip install 'triton_repo_builder[push]'",
        ) from None


class BucketStore:
    """Revisions below one prefix of a bucket."""

    def __init__(self, location: Bucket, system: Any = None) -> None:
        self.location = location
        self._system = system
        self._shown = str(location).partition("@")[0]

    @property
    def system(self) -> Any:
        """The file system, connected when it is first needed."""
        if self._system is None:
            with explained(self.location.scheme, str(self.location)):
                self._system = connect(self.location)
        return self._system

    def push(self, content: Content, progress: Progress, *, dry_run: bool = False) -> Pushed:
        """Send what is missing, verify what arrived, then move the pointer."""
        digest = content.index.digest
        with explained(self.location.scheme, self._shown):
            previous = self._pointed()
            sent, copied = self._send(content, previous, progress, dry_run=dry_run)
            if not dry_run:
                self._write(f"{REVISIONS}/{digest}.json", content.index.document)
                previous = self._point(content)
        return Pushed(
            location=self._shown,
            revision=f"sha256:{digest}",
            pinned=f"{self._shown}@sha256:{digest}",
            previous=f"sha256:{previous}" if previous else "",
            files=len(content.index.entries),
            bytes=content.index.bytes,
            sent=tuple(entry.path for entry in sent),
            sent_bytes=sum(entry.bytes for entry in sent),
            copied=tuple(entry.path for entry in copied),
            labels=dict(content.labels),
            dry_run=dry_run,
        )

    def index(self) -> tuple[str, Index]:
        """Digest and files of the revision that the location means."""
        with explained(self.location.scheme, self._shown):
            digest = self.location.revision or self._pointed()
            if not digest:
                self.system.ls(self.location.bucket)  # says so where there is no bucket at all
                raise self._nothing("nothing was pushed here: there is no current.json")
            document = self._read(f"{REVISIONS}/{digest}.json")
            if document is None:
                raise self._nothing(f"there is no revision sha256:{digest}")
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
            with explained(self.location.scheme, self._url(path)):
                materialise(target / entry.path, self._blocks(path), entry, self._url(path))
            done += entry.bytes
            progress(entry.path, done, total)

    def models_url(self, digest: str) -> str:
        """The revision as Triton's ``--model-repository`` takes it (S3)."""
        endpoint = self.location.endpoint
        if not endpoint:
            with explained(self.location.scheme, self._shown):
                self.system.connect()
                # What AWS_ENDPOINT_URL or the profile said; Triton's own SDK knows only Amazon's.
                found = str(self.system.s3.meta.endpoint_url)
            endpoint = "" if ".amazonaws.com" in found else found
        at = f"{_with_port(endpoint)}/" if endpoint else ""
        return f"s3://{at}{self.location.root}/{REVISIONS}/{digest}"

    def _send(
        self, content: Content, previous: str, progress: Progress, *, dry_run: bool
    ) -> tuple[list[Entry], list[Entry]]:
        """What had to travel, and what the bucket had in the revision before and copied itself."""
        sent: list[Entry] = []
        copied: list[Entry] = []
        done = 0
        before = self._known(previous) if previous != content.index.digest else {}
        # A model's configuration after its files: whoever looks into a prefix early sees no half model.
        for entry in sorted(content.index.entries, key=lambda e: e.path.endswith("config.pbtxt")):
            path = f"{REVISIONS}/{content.index.digest}/{entry.path}"
            progress(entry.path, done, content.index.bytes)
            if self._whole(path, entry):
                pass
            elif entry.sha256 in before and self._copy(before[entry.sha256], path, entry, dry_run=dry_run):
                copied.append(entry)
            else:
                sent.append(entry)
                if not dry_run:
                    self._put(path, content.files[entry.path])
                    self._verify(path, entry)
            done += entry.bytes
        progress("", done, content.index.bytes)
        return sent, copied

    def _known(self, digest: str) -> dict[str, str]:
        """Where a revision has the content of each digest; nothing where its index is lost."""
        document = self._read(f"{REVISIONS}/{digest}.json") if digest else None
        if document is None or hashlib.sha256(document).hexdigest() != digest:
            return {}
        index = read_index(document, digest, self._url(f"{REVISIONS}/{digest}.json"))
        return {entry.sha256: f"{REVISIONS}/{digest}/{entry.path}" for entry in index.entries}

    def _copy(self, source: str, path: str, entry: Entry, *, dry_run: bool) -> bool:
        """Let the bucket copy; False where what it had is missing or damaged."""
        if dry_run:
            return self._whole(source, entry)
        try:
            self.system.cp_file(self._at(source), self._at(path))
        except FileNotFoundError:
            return False
        return self._whole(path, entry)

    def _whole(self, path: str, entry: Entry) -> bool:
        """Whether this very file is there; it is read back, for a size alone proves nothing."""
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
        digest = hashlib.sha256()
        for block in self._blocks(path):
            digest.update(block)
        return digest.hexdigest()

    def _blocks(self, path: str) -> Iterator[bytes]:
        size = self.system.info(self._at(path))["size"]
        for start in range(0, size, BLOCK):
            yield self.system.cat_file(self._at(path), start=start, end=min(start + BLOCK, size))

    def _read(self, path: str) -> bytes | None:
        try:
            found: bytes = self.system.cat_file(self._at(path))
        except FileNotFoundError:
            return None
        return found

    def _write(self, path: str, data: bytes) -> None:
        """One small object, and a look at what arrived."""
        if self._read(path) == data:
            return
        self.system.pipe_file(self._at(path), data)
        arrived = self._read(path) or b""
        if arrived != data:
            actual, meant = (hashlib.sha256(blob).hexdigest() for blob in (arrived, data))
            raise mismatch(self._url(path), actual, meant)

    def _point(self, content: Content) -> str:
        """Move the pointer, and say where it was: another push may have moved it since ours began."""
        digest, before = content.index.digest, self._pointed()
        if before != digest:
            self.system.pipe_file(self._at(POINTER), _pointer(content, before))
            now = self._pointed()
            if now != digest:
                pinned = f"{self._shown}@sha256:{digest}"
                raise overtaken(self._shown, f"sha256:{now}" if now else "", pinned)
        return before

    def _pointed(self) -> str:
        """Hex digest of the current revision; empty where there is none."""
        document = self._read(POINTER)
        if document is None:
            return ""
        try:
            match = DIGEST.fullmatch(json.loads(document)["revision"])
        except (ValueError, KeyError, TypeError):
            match = None
        if match is None:
            raise TrbError(
                Code.NOT_PUSHED,
                "is no pointer of trb",
                where=self._url(POINTER),
                remedy="choose another prefix, or remove that object",
            )
        return match[1]

    def _at(self, path: str) -> str:
        return f"{self.location.root}/{path}"

    def _url(self, path: str) -> str:
        return f"{self._shown}/{path}"

    def _nothing(self, message: str) -> TrbError:
        return TrbError(
            Code.NOT_PUSHED, message, where=self._shown, remedy=f"push first: trb push {self._shown} REPO"
        )


def _pointer(content: Content, previous: str) -> bytes:
    digest = content.index.digest
    document = {
        "schema": 1,
        "revision": f"sha256:{digest}",
        "path": f"{REVISIONS}/{digest}",
        "previous": f"sha256:{previous}" if previous else None,
        "labels": dict(content.labels),
    }
    return f"{json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)}\n".encode()


def _with_port(endpoint: str) -> str:
    """Triton tells a host from a bucket by its port."""
    scheme, _, host = endpoint.rstrip("/").partition("://")
    if ":" in host:
        return f"{scheme}://{host}"
    return f"{scheme}://{host}:{443 if scheme == 'https' else 80}"
