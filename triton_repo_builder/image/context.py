"""The build context: a tar of ``docker/``, our onnxruntime backend, wheels and perhaps a repository.

Names are sorted and times and owners are zero, so that the same input gives the same bytes.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from triton_repo_builder import resources
from triton_repo_builder.errors import Exit, TrbError

FILES = ("Dockerfile", "assemble.sh", "entrypoint.sh", "healthcheck.py", "requirements.txt")
MODELS = "models"
PLACEHOLDER = (
    b"The model repository belongs here: mount it, or bake it in with trb image build --repository.\n"
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What image is wanted."""

    tag: str
    base: str = "debian:bookworm-slim"
    repository: Path | None = None
    """Baked in as /models; None leaves that to a mount."""
    wheels: Path | None = None
    """Folder of wheels to install from; None takes them from PyPI."""
    cache: bool = True


def write(request: Request, sink: IO[bytes]) -> None:
    """Write the context. Raises ``TrbError`` where a wheel is missing."""
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for name in FILES:
            _file(tar, name, resources.docker() / name)
        for path in _below(resources.runtime("onnxruntime_backend")):
            _file(tar, f"onnxruntime_backend/{path.name}", path)
        _folder(tar, "wheels")
        for path in _wheels(request.wheels):
            _file(tar, f"wheels/{path.name}", path)
        _folder(tar, MODELS)
        if request.repository is None:
            _bytes(tar, f"{MODELS}/.gitkeep", PLACEHOLDER)
            return
        root = request.repository.resolve()
        for path in sorted(root.rglob("*")):
            name = f"{MODELS}/{path.relative_to(root).as_posix()}"
            if path.is_dir():
                _folder(tar, name)
            else:
                _file(tar, name, path)


def _below(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.iterdir()) if path.suffix == ".py")


def _wheels(folder: Path | None) -> list[Path]:
    """The wheels that requirements.txt names, one of each."""
    if folder is None:
        return []
    found = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    lines = (resources.docker() / "requirements.txt").read_text(encoding="utf-8").splitlines()
    chosen, missing = [], []
    for line in lines:
        name, _, version = line.partition("==")
        if not version:
            continue
        start = f"{name.replace('-', '_')}-{version}-"
        match = [path for path in found if path.name.lower().startswith(start)]
        chosen += match
        missing += [line] * (not match)
    if missing:
        raise TrbError(
            Exit.NOT_FOUND,
            f"has no wheel of {', '.join(missing)}",
            where=str(folder),
            remedy=f"pip download --no-deps -d {folder} {' '.join(missing)}",
        )
    return chosen


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
    with path.open("rb") as source:
        tar.addfile(entry, source)


def _bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = 0o644
    tar.addfile(entry, io.BytesIO(content))
