"""How a repository gets into a container: mounted where the daemon sees the same files, else copied."""

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

from triton_repo_builder.errors import Exit, TrbError
from triton_repo_builder.serving.container import labels
from triton_repo_builder.serving.engine import Progress

MODELS = "/models"
"""Where the repository lies inside."""
CHUNK = 1 << 20


def mountable(root: Path, uid: int, *, same_ids: bool) -> str:
    """Why a container whose user is ``uid`` could not use a mount; empty where it can.

    ``same_ids``: a user id inside is the same user outside.
    """
    for path in [root, *root.rglob("*")]:
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            return f"{path.relative_to(root)} is a link that leads out of the repository"
        facts = path.stat()
        if same_ids and facts.st_uid == uid:
            continue
        need = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(facts.st_mode) else 0)
        if facts.st_mode & need != need:
            return f"{path.relative_to(root)} cannot be read by user {uid} of the container"
    return ""


def arrived(container: Any, root: Path) -> bool:
    """Whether a mount shows the daemon the same files that lie here: one of them is compared."""
    import docker

    sample = min(
        (path for path in root.rglob("*") if path.is_file() and path.stat().st_size),
        key=lambda path: path.stat().st_size,
        default=None,
    )
    if sample is None:
        return True
    name = f"{MODELS}/{sample.relative_to(root).as_posix()}"
    try:
        stream, _ = container.get_archive(name)
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
            member = archive.extractfile(archive.getmembers()[0])
            return member is not None and member.read() == sample.read_bytes()
    except docker.errors.APIError:
        return False


def volume(client: Any, image: Any, root: Path, user: str, tell: Progress) -> Any:
    """A new volume that holds a copy of the repository, owned by ``user`` (``UID:GID``)."""
    import docker

    marks = labels.mine(root)
    made = client.volumes.create(labels=marks)
    helper = None
    try:
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        tell(f"copying the repository to the Docker daemon ({size / 1e6:.0f} MB)")
        # Only a container gives access to a volume; this one is never started.
        helper = client.containers.create(
            image.id, volumes={made.name: {"bind": MODELS, "mode": "rw"}}, labels=marks
        )
        helper.put_archive(MODELS, _archive(root, user))
    except BaseException as error:
        if helper is not None:
            helper.remove(force=True)
            helper = None
        made.remove(force=True)
        if isinstance(error, docker.errors.APIError):
            text = error.explanation or str(error)
            raise TrbError(
                Exit.DISK_FULL if "no space" in text else Exit.DAEMON_UNREACHABLE,
                f"the repository cannot be copied to the Docker daemon: {text}",
                where=str(root),
                remedy="free space there (docker system df)" if "no space" in text else "see: docker info",
            ) from None
        raise
    helper.remove(force=True)
    return made


def _archive(root: Path, user: str) -> Iterator[bytes]:
    """The repository as a tar stream that is never whole in memory or on disk."""
    reading, writing = os.pipe()
    uid, _, gid = user.partition(":")

    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid, member.gid = int(uid or 0), int(gid or uid or 0)
        member.uname = member.gname = ""
        member.mode |= 0o555 if member.isdir() else 0o444
        return member

    def write(sink: IO[bytes]) -> None:
        # A reader that gave up closes the pipe; its own error is the one to tell.
        with suppress(BrokenPipeError), sink, tarfile.open(fileobj=sink, mode="w|", dereference=True) as tar:
            tar.add(root, arcname=".", filter=owned)

    thread = threading.Thread(target=write, args=(os.fdopen(writing, "wb"),), daemon=True)
    thread.start()
    with os.fdopen(reading, "rb") as source:
        while chunk := source.read(CHUNK):
            yield chunk
    thread.join()
