"""KServe's storage initializer (``.ci/kserve``), run as its init container runs it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

PYTHON = Path(__file__).resolve().parents[2] / ".cache" / "kserve" / "bin" / "python"
CODE = """
import logging, sys
from kserve_storage import Storage
logging.getLogger("requests").setLevel(logging.ERROR)
Storage.download_files([sys.argv[1]], [sys.argv[2]])
"""
"""As python/storage-initializer/scripts/initializer-entrypoint does for one source."""


def python() -> Path | None:
    """The Python that has it; None without."""
    return PYTHON if PYTHON.exists() else None


def fetch(uri: str, target: Path, variables: Mapping[str, str]) -> None:
    """Fetch a ``storageUri`` into a folder; fails the test with the initializer's output.

    The webhook of KServe hands ``oci+fetch://`` on as ``oci://``.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    for name in ("PYTHONPATH", "PYTHONHOME"):
        environment.pop(name, None)
    done = subprocess.run(
        [str(PYTHON), "-c", CODE, uri.replace("oci+fetch://", "oci://"), str(target)],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
