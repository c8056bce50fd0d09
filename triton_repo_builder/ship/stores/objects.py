"""Objects below one prefix of a bucket: read, written and read back, by fsspec."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from triton_repo_builder.base import transfer
from triton_repo_builder.base.files import File
from triton_repo_builder.ship.stores import filesystem
from triton_repo_builder.ship.stores.failures import explained
from triton_repo_builder.ship.stores.location import Bucket
from triton_repo_builder.ship.stores.revision import Entry, mismatch
from triton_repo_builder.ship.stores.store import Hints, Progress


class Objects:
    """Objects that are stored below a location; paths are relative to it."""

    HINTS: ClassVar[Hints]

    def __init__(self, location: Bucket, system: Any = None) -> None:
        self.location = location
        self._system = system
        self._shown = str(location).partition("@")[0]

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

    def copy_all(self, target: Path, progress: Progress) -> int:
        """Write every object below the location, also of other tools, into a folder; returns how many."""
        root = f"{self.location.root}/"
        with explained(self.HINTS, self._shown):
            objects: dict[str, Any] = self.system.find(self.location.root, detail=True)
            total, done = sum(int(facts["size"] or 0) for facts in objects.values()), 0
            for key, facts in sorted(objects.items()):
                name = key.removeprefix(root)
                if name.endswith("/"):
                    continue
                transfer.check_inside(name, self._url(name))
                path = target / name
                path.parent.mkdir(parents=True, exist_ok=True)
                size = int(facts["size"] or 0)
                with path.open("wb") as sink:
                    blocks = filesystem.blocks(self.system, key, f"{self.location.scheme}://{key}")
                    sink.writelines(transfer.bounded(blocks, size, f"{self.location.scheme}://{key}"))
                done += size
                progress(name, done, total)
        return len(objects)

    def _whole(self, path: str, entry: Entry) -> bool:
        """Whether exactly this file is stored: it is read back, as a size alone proves nothing."""
        try:
            size = self.system.info(self._at(path))["size"]
        except FileNotFoundError:
            return False
        return size == entry.bytes and self._hash(path, size) == entry.sha256

    def _verify(self, path: str, entry: Entry) -> None:
        actual = self._hash(path, entry.bytes)
        if actual != entry.sha256:
            raise mismatch(self._url(path), actual, entry.sha256)

    def _put(self, path: str, file: File) -> None:
        if file.source is None:
            self.system.pipe_file(self._at(path), file.content)
        else:
            self.system.put_file(str(file.source), self._at(path))

    def _hash(self, path: str, most: int) -> str:
        return transfer.digest(transfer.bounded(self._blocks(path), most, self._url(path)))

    def _blocks(self, path: str) -> Iterator[bytes]:
        return filesystem.blocks(self.system, self._at(path), self._url(path))

    def _read(self, path: str) -> bytes | None:
        """A small object; None if it is not there. Raises DIGEST_MISMATCH if it is a large one."""
        try:
            return filesystem.document(self.system, self._at(path), self._url(path))
        except FileNotFoundError:
            return None

    def _remove(self, path: str) -> None:
        """Remove one object; nothing if it is not there."""
        with contextlib.suppress(FileNotFoundError):
            self.system.rm_file(self._at(path))

    def _remove_below(self, folder: str) -> None:
        """Remove every object whose path begins with ``folder/``."""
        with contextlib.suppress(FileNotFoundError):
            self.system.rm(self._at(folder), recursive=True)

    def _names(self, folder: str) -> list[str]:
        """Names of the objects right below a folder, sorted."""
        try:
            entries = self.system.ls(self._at(folder), detail=True)
        except FileNotFoundError:
            return []
        return sorted(entry["name"].rsplit("/", 1)[-1] for entry in entries if entry["type"] == "file")

    def _write(self, path: str, data: bytes) -> None:
        """Write one small object, and read it back."""
        if self._read(path) == data:
            return
        self.system.pipe_file(self._at(path), data)
        arrived = self._read(path) or b""
        if arrived != data:
            actual, expected = (hashlib.sha256(blob).hexdigest() for blob in (arrived, data))
            raise mismatch(self._url(path), actual, expected)

    def _at(self, path: str) -> str:
        return f"{self.location.root}/{path}"

    def _url(self, path: str) -> str:
        return f"{self._shown}/{path}"
