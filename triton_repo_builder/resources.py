"""Finds ``templates/`` and ``docker/``: inside the installed package, else beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def templates() -> Path:
    """The folder of Jinja templates."""
    return _folder("templates")


def docker() -> Path:
    """The folder with the Dockerfile of the slim image."""
    return _folder("docker")


def _folder(name: str) -> Path:
    """A top-level folder of the project. An editable install has no copy in the package."""
    for folder in (PACKAGE / name, PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"{name}/ is neither in {PACKAGE} nor beside it: the installation is broken")


def runtime(name: str) -> Path:
    """The source of a model that runs inside the server, e.g. ``tokenizer.py``."""
    return PACKAGE / "runtime" / name
