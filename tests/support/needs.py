"""What a test needs and this machine may lack."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest


def unavailable(reason: str) -> NoReturn:
    """Skip with the reason; in CI (.ci/run) that is a failure."""
    if os.environ.get("TRB_CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def interpreter(version: str) -> str:
    """A Python of this version: on PATH, or one of pyenv's."""
    found = shutil.which(f"python{version}")
    # pyenv's own python3.X is a shim, which answers only for versions that are switched on.
    if found and ".pyenv/shims" not in found:
        return found
    roots = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*"))
    for root in reversed(roots):
        if (root / "bin" / f"python{version}").exists():
            return str(root / "bin" / f"python{version}")
    unavailable(f"there is no Python {version}")
