"""Modules beside a model.py: that they can be imported, and have what is taken out of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.check.context import report
from triton_repo_builder.check.finding import Finding, Place, Severity
from triton_repo_builder.check.python_source import CLASS, PythonSource

SEVERITIES: tuple[Severity, ...] = ("error", "warning")
_DYNAMIC = re.compile(
    rb"import\s*\(?\s*\*|\b(?:__getattr__|__dict__|globals|locals|vars|exec|eval|setattr|modules|__path__)\b"
)
"""What may bring a name that stands nowhere in the text."""
_ELSEWHERE = re.compile(rb"\bsys\s*\.\s*(?:path|modules|meta_path)|\baddsitedir\b|from\s+sys\s+import")


def check(file: Path, sources: Mapping[Path, PythonSource]) -> Iterator[Finding]:
    """On the modules that the model's file imports, directly or through another."""
    loaded = at_once(file, sources)
    if any(_ELSEWHERE.search(files.read(module)) for module in sources):
        # A module of the same name may be found before. Most put the model's own folder on the path.
        for severity in SEVERITIES:
            for finding in _names(sources, loaded, severity):
                yield replace(finding, severity="warning")
        return
    for module in sorted(loaded - {file}):
        stop = sources[module].stop
        if stop and not (stop.unbound and gives_builtins(sources)):
            yield report("python-raises", Place(module, stop.line, stop.column), stop.message)
    for severity in SEVERITIES:
        yield from _names(sources, loaded, severity)


def gives_builtins(sources: Mapping[Path, PythonSource]) -> bool:
    """Whether some module may give all others a name."""
    return any(b"builtins" in files.read(module) for module in sources)


def names_class(file: Path, sources: Mapping[Path, PythonSource]) -> bool:
    """Whether some module beside a model's file may give it its class, or that class a method."""
    return any(CLASS.encode() in files.read(module) for module in sources if module != file)


def _names(
    sources: Mapping[Path, PythonSource], loaded: Collection[Path], severity: Severity
) -> Iterator[Finding]:
    """Names that a module does not have: an error in what surely runs when the model loads."""
    words: dict[Path, frozenset[bytes] | None] = {}
    for importing, source in sources.items():
        taken_at_load = [*source.names(loading=True)]
        taken_later = [*source.names(loading=False)]
        if importing not in loaded:
            taken_at_load, taken_later = [], taken_at_load + taken_later
        for name, taken, line in taken_at_load if severity == "error" else taken_later:
            module = importing.parent / f"{name}.py"
            if module not in sources or sources[module].tree is None or not taken.isidentifier():
                continue
            if module not in words:
                words[module] = _words(module)
            known = words[module]
            if known is None or not taken.isascii() or taken.startswith("__") or taken.encode() in known:
                continue
            message = f"ImportError: cannot import name '{taken}' from '{name}'"
            remedy = f"define {taken} in {module.name}, or correct the name"
            yield report("python-import", Place(importing, line), message, severity=severity, remedy=remedy)


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


def _words(module: Path) -> frozenset[bytes] | None:
    """All words of a module, comments too; None if it may have names that stand nowhere."""
    content = files.read(module)
    return None if _DYNAMIC.search(content) else frozenset(re.findall(rb"\w+", content))
