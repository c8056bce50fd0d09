"""The build context: a tar of ``docker/``, our onnxruntime backend, wheels and perhaps a repository.

Names are sorted and times and owners are zero: the same input gives the same bytes.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from triton_repo_builder.base import files, resources
from triton_repo_builder.repository import walk
from triton_repo_builder.repository.importable import CACHE
from triton_repo_builder.ship.container_image import wheels

FILES = ("Dockerfile", "assemble.sh", "entrypoint.sh", "healthcheck.py", "requirements.txt")
MODELS = "models"
GATEWAY = "gateway"
"""Folder of the context that is empty without the gateway."""
PLACEHOLDER = (
    b"The model repository belongs here: mount it, or bake it in with trb image build --repository.\n"
)


@dataclass(frozen=True, kw_only=True)
class ImageRequest:
    """Options of the build."""

    tag: str
    base: str = "debian:bookworm-slim"
    repository: Path | None = None
    """Baked in as /models; None leaves that to a mount."""
    wheels: Path | None = None
    """Folder of wheels to install; None: pip downloads them, in the container or else on this machine."""
    cache: bool = True
    gateway: bool = False
    """With ``trb gateway`` and what it needs."""


def write(request: ImageRequest, sink: IO[bytes]) -> None:
    """Write the context. Raises ``TrbError`` for a missing wheel and for a link out of the repository."""
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for name in FILES:
            _file(tar, name, resources.docker() / name)
        for name, path in resources.onnxruntime_backend().items():
            _file(tar, f"onnxruntime_backend/{name}", path)
        _folder(tar, "wheels")
        pins = wheels.pinned(gateway=request.gateway)
        for path in [] if request.wheels is None else wheels.pick(request.wheels, pins):
            _file(tar, f"wheels/{path.name}", path)
        _folder(tar, GATEWAY)
        for name, path in _gateway() if request.gateway else ():
            _file(tar, f"{GATEWAY}/{name}", path)
        _folder(tar, MODELS)
        if request.repository is None:
            _bytes(tar, f"{MODELS}/.gitkeep", PLACEHOLDER)
            return
        for entry in walk.walk(request.repository):
            if CACHE in entry.name.split("/"):  # bytecode that need not be of the source beside it
                continue
            if entry.outside:
                raise walk.leads_out(request.repository / entry.name)
            name = f"{MODELS}/{entry.name}"
            if entry.folder:
                _folder(tar, name)
            else:
                _file(tar, name, entry.path)


def _gateway() -> Iterator[tuple[str, Path]]:
    """The package itself, and the list of what its gateway needs."""
    yield wheels.GATEWAY, resources.docker() / wheels.GATEWAY
    for path in sorted(resources.PACKAGE.rglob("*")):
        name = path.relative_to(resources.PACKAGE)
        # Data of other commands stays out; the gateway's page and the list of releases (trb smoke) do not.
        needed = name.suffix == ".py" or "gateway" in name.parts or name.parent.name == "base"
        if path.is_file() and CACHE not in name.parts and needed:
            yield f"{resources.PACKAGE.name}/{name.as_posix()}", path


def _folder(tar: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type = tarfile.DIRTYPE
    entry.mode = 0o755
    tar.addfile(entry)


def _file(tar: tarfile.TarFile, name: str, path: Path) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = path.stat().st_size
    # Git keeps the executable bit, a wheel may not.
    entry.mode = 0o755 if path.suffix == ".sh" or os.access(path, os.X_OK) else 0o644
    with files.opened(path) as source:
        tar.addfile(entry, source)


def _bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = 0o644
    tar.addfile(entry, io.BytesIO(content))
