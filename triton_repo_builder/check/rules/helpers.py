"""Modules beside a model.py: those that run at load, and their effect on its class."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.check.python_source import CLASS, PythonSource

_ELSEWHERE = re.compile(rb"\bsys\s*\.\s*(?:path|modules|meta_path)|\baddsitedir\b|from\s+sys\s+import")


def stops(file: Path, sources: Mapping[Path, PythonSource]) -> dict[Path, ast.Raise]:
    """Modules that the model's file imports and that always raise when they are."""
    if any(_ELSEWHERE.search(files.read(module)) for module in sources):
        return {}  # A module of the same name may come first.
    loaded = sorted(at_once(file, sources) - {file})
    return {module: stop for module in loaded if (stop := sources[module].stop)}


def names_class(file: Path, sources: Mapping[Path, PythonSource]) -> bool:
    """Whether a module beside a model's file may define its class, or a method of the class."""
    return any(CLASS.encode() in files.read(module) for module in sources if module != file)


def at_once(file: Path, sources: Mapping[Path, PythonSource], *methods: str) -> set[Path]:
    """The model's file and the modules that surely run when it is loaded, or when these methods run."""
    seen = {file, file.with_name("__init__.py")} & sources.keys()
    waiting = [*seen]
    while waiting:
        importing = waiting.pop()
        for name, _ in sources[importing].certain(*methods):
            module = importing.parent / f"{name.removeprefix('.')}.py"
            if module in sources and module not in seen:
                seen.add(module)
                waiting.append(module)
    return seen
