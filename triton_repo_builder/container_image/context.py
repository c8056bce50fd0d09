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
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.repository import walk

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
        for entry in walk.walk(request.repository):
            name = f"{MODELS}/{entry.name}"
            if entry.folder:
                _folder(tar, name)
            else:
                _file(tar, name, entry.path)


def _below(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.iterdir()) if path.suffix == ".py")


def _wheels(folder: Path | None) -> list[Path]:
    """The wheels that requirements.txt names; of several for one package pip takes what fits."""
    if folder is None:
        return []
    found = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    chosen, missing = [], []
    for line in pinned():
        name, _, version = line.partition("==")
        start = f"{name.replace('-', '_')}-{version}-"
        match = [path for path in found if path.name.lower().startswith(start)]
        chosen += match
        missing += [line] * (not match)
    if missing:
        raise TrbError(
            Code.NOT_FOUND,
            f"has no wheel of {', '.join(missing)}",
            where=str(folder),
            remedy=f"{download(folder)} {' '.join(missing)}",
        )
    return chosen


def pinned() -> list[str]:
    """``name==version`` of every package in the image."""
    lines = (resources.docker() / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if "==" in line]


def download(folder: Path | str) -> str:
    """The command that fetches wheels for the image, whatever runs here: bookworm's Python is 3.11."""
    platforms = " ".join(
        f"--platform {tag}_x86_64" for tag in ("manylinux_2_35", "manylinux_2_28", "manylinux2014")
    )
    return f"pip download --no-deps --only-binary=:all: --python-version 3.11 {platforms} -d {folder}"


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
