"""Give a container the repository: a mount if the daemon sees the same files, else a copy in a volume."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import walk
from triton_repo_builder.run.serve.docker import cleanup, daemon
from triton_repo_builder.run.serve.docker.cleanup import Cleanup
from triton_repo_builder.run.serve.engine import Progress

MODELS = "/models"
"""Path of the repository in the container."""
CHUNK = 1 << 20
COMPARED = 12
"""Number of files compared through the daemon: the newest, which an older copy would not have."""
COMPARED_BYTES = 1 << 16
"""Files up to this size are compared by content, larger ones by size."""


def obstacle(root: Path, uid: int | None, *, same_ids: bool) -> str:
    """Reason why a container with user ``uid`` (None: unknown) cannot use a mount; empty if it can.

    ``same_ids``: a user id inside is the same user outside. Raises ``TrbError`` for unreadable files.
    """
    facts = root.stat()
    entries = [("the repository", facts.st_mode, facts.st_uid, True)]
    for entry in walk.walk(root):
        if entry.outside:
            return f"{entry.name} is a link that leads out of the repository"
        entries.append((entry.name, entry.mode, entry.owner, entry.folder))
    for name, mode, owner, folder in entries:
        if same_ids and owner == uid:
            continue
        need = stat.S_IROTH | (stat.S_IXOTH if folder else 0)
        if mode & need != need:
            return f"{name} cannot be read by the container's user"
    return ""


def shows_same_files(client: Any, container: str, root: Path) -> bool:
    """Whether a mount shows the container the same files as here."""
    files = [entry for entry in walk.walk(root) if not entry.folder]
    newest = sorted(files, key=lambda entry: entry.modified, reverse=True)[:COMPARED]
    return all(_same_file(client, container, entry) for entry in newest)


def _same_file(client: Any, container: str, entry: walk.Entry) -> bool:
    try:
        stream, facts = client.api.get_archive(container, f"{MODELS}/{entry.name}")
        if facts["size"] != entry.size or entry.size > COMPARED_BYTES:
            return bool(facts["size"] == entry.size)
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
            member = archive.extractfile(archive.getmembers()[0])
            return member is not None and member.read() == files.read(entry.path)
    except daemon.api_error():
        return False


def copy(client: Any, image: Any, root: Path, names: Cleanup, tell: Progress) -> None:
    """Create the volume with a copy of the repository, readable for every user."""
    marked = cleanup.labels(root)
    size = sum(entry.size for entry in walk.walk(root))
    client.volumes.create(names.volume, labels=marked)
    tell(f"copying the repository to the Docker daemon ({size / 1e6:.0f} MB)")
    # Files reach a volume only through a container; this one is never started.
    client.containers.create(
        image.id,
        ["true"],
        name=names.helper,
        volumes={names.volume: {"bind": MODELS, "mode": "rw"}},
        labels=marked,
    )
    stream = _Archive(root)
    try:
        client.api.put_archive(names.helper, MODELS, stream.read())
    except daemon.errors() as error:
        stream.check()
        text = daemon.explanation(error)
        full = "no space" in text
        raise TrbError(
            Code.DISK_FULL if full else Code.DAEMON_UNREACHABLE,
            f"the repository cannot be copied to the Docker daemon: {text}",
            where=str(root),
            remedy="free space there (docker system df)" if full else "see: docker info",
        ) from None
    stream.check()
    client.api.remove_container(names.helper, force=True)


class _Archive:
    """The repository as a tar stream, never complete in memory or on disk."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._error: BaseException | None = None

    def check(self) -> None:
        """Raise the error of the writing thread, if any."""
        if self._error is not None:
            raise self._error

    def read(self) -> Iterator[bytes]:
        """Chunks of the stream."""
        reading, writing = os.pipe()
        thread = threading.Thread(target=self._write, args=(os.fdopen(writing, "wb"),), daemon=True)
        thread.start()
        with os.fdopen(reading, "rb") as source:
            while chunk := source.read(CHUNK):
                yield chunk
        thread.join()
        self.check()

    def _write(self, sink: IO[bytes]) -> None:
        try:
            # A reader that gave up closes the pipe; its own error is the one to report.
            with suppress(BrokenPipeError), sink, tarfile.open(fileobj=sink, mode="w|") as tar:
                for entry in walk.walk(self._root):
                    _add(tar, entry)
        except BaseException as error:
            self._error = error


def _add(tar: tarfile.TarFile, entry: walk.Entry) -> None:
    member = tarfile.TarInfo(entry.name)
    member.mtime = int(entry.modified)
    if entry.folder:
        member.type = tarfile.DIRTYPE
        member.mode = 0o755
        tar.addfile(member)
        return
    member.mode = 0o644 | (entry.mode & 0o111)
    with files.opened(entry.path) as source:
        member.size = os.fstat(source.fileno()).st_size
        tar.addfile(member, source)
