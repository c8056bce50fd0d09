"""Finds ``templates/``: inside the installed package, else beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def templates() -> Path:
    """The folder of Jinja templates. An editable install has no copy in the package."""
    for folder in (PACKAGE / "templates", PACKAGE.parent / "templates"):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"templates/ is neither in {PACKAGE} nor beside it: the installation is broken")


def runtime(name: str) -> Path:
    """The source of a model that runs inside the server, e.g. ``tokenizer.py``."""
    return PACKAGE / "runtime" / name
