"""Where a model's folder ends: its author chose the links and the names in it."""

from __future__ import annotations

import stat
from pathlib import Path

from triton_repo_builder.base.errors import Code, TrbError


def within(folder: Path, name: str) -> Path | None:
    """The file called ``name`` in a model's ``folder``; None if there is none.

    The folder's author chose its links. Raises ``TrbError`` OUTSIDE_FOLDER for one that leads out of it,
    other than into the blobs of the same model in Hugging Face's cache, and NOT_FOUND for a pipe or a device.
    """
    path = folder / name
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # not there, a loop of links, a name that no file can have
        return None
    if stat.S_ISDIR(mode):
        return None
    if not stat.S_ISREG(mode):
        raise TrbError(
            Code.NOT_FOUND,
            "this is not a regular file",
            where=str(path),
            remedy="put the file itself there, or remove what is there",
        )
    check_within(folder, path)
    return path


def check_within(folder: Path, path: Path) -> None:
    """``TrbError`` OUTSIDE_FOLDER if a path of a model's ``folder`` leads out of it (see ``within``)."""
    if is_within(folder, path):
        return
    raise TrbError(
        Code.OUTSIDE_FOLDER,
        f"this leads out of the model's folder, to {path.resolve()}",
        where=str(path),
        remedy="put a copy of that file there; of a whole folder, follow its links: cp -rL FOLDER COPY",
    )


def is_within(folder: Path, path: Path) -> bool:
    """Whether a path of a model's ``folder`` stays in it after all links are resolved (see ``within``)."""
    target, home = path.resolve(), folder.resolve()
    return target.is_relative_to(home) or target.parent in _blobs(home)


def _blobs(home: Path) -> list[Path]:
    """Where Hugging Face's cache keeps this folder's files: models--NAME/snapshots/REVISION links there."""
    return [
        place.parent.parent / "blobs"
        for place in (home, *home.parents)
        if place.parent.name == "snapshots" and place.parent.parent.name.startswith("models--")
    ]
