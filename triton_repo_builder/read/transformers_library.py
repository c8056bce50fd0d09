"""The only importer of transformers, which takes seconds to import."""

from __future__ import annotations

import importlib
import os
from importlib import metadata
from typing import Any


def load(module: str = "") -> Any:
    """``transformers``, or one of its modules, without its advice on missing frameworks."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    return importlib.import_module(f"transformers.{module}" if module else "transformers")


def version() -> str:
    """Version of the installed transformers."""
    return metadata.version("transformers")
