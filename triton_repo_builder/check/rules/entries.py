"""Entries of the whole repository: pipes, links, names that differ only in case."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from triton_repo_builder.base.files import is_foreign
from triton_repo_builder.check.context import report
from triton_repo_builder.check.finding import Finding, Severity
from triton_repo_builder.repository import MANIFEST, Repository
from triton_repo_builder.repository.model import NO_PIPE, PIPE


def pipes(repository: Repository) -> Iterator[Finding]:
    """Named pipes: a reader never reaches their end."""
    for pipe in repository.pipes:
        yield report("file-unreadable", str(pipe), PIPE, remedy=NO_PIPE)


def links(repository: Repository) -> Iterator[Finding]:
    """Links that lead nowhere, at the top and among a model's own entries: the server stops at them."""
    names = {model.name for model in repository.models}
    for entry in sorted(repository.path.iterdir()):
        inside: list[Path] = []
        if hidden := _hidden(entry):
            yield report("file-unreadable", str(entry), f"a link that cannot be followed: {hidden}")
        elif entry.is_symlink() and not entry.exists():
            message = (
                f"failed to stat file {entry}: the server reads no model of a repository with such a link"
            )
            yield report("link-dangling", str(entry), message)
        elif entry.name in names:
            with suppress(OSError):  # The model's own rules say that it cannot be read.
                inside = sorted(inner for inner in entry.iterdir() if inner.is_symlink())
            for inner in inside:
                if hidden := _hidden(inner):
                    yield report("file-unreadable", str(inner), f"a link that cannot be followed: {hidden}")
                elif not inner.exists():
                    yield report("link-dangling", str(inner), f"failed to stat file {inner}")


def _hidden(entry: Path) -> str:
    """Reason why the target of a link is not accessible; empty for all other entries."""
    try:
        entry.exists()
    except OSError as error:
        return (error.strerror or str(error)) if entry.is_symlink() else ""
    return ""


def case_clashes(repository: Repository) -> Iterator[Finding]:
    """Names in a folder that are equal on a case-insensitive disk: macOS, Windows, some volumes."""
    ours = {model.name for model in repository.models}
    if repository.manifest is not None:
        ours |= {name.split("/")[0] for name in (*repository.manifest.files, MANIFEST)}
    for top, folders, names in os.walk(repository.path):
        folders[:] = sorted(name for name in folders if not is_foreign(name))
        first: dict[str, str] = {}
        for name in sorted((*folders, *names)):
            other = first.setdefault(name.casefold(), name)
            if other == name:
                continue
            path = Path(top, name)
            below = path.relative_to(repository.path).parts
            needed = below[0] in ours or (len(below) == 1 and other in ours)
            message = f"differs from {other} only in case: a disk that ignores case keeps one of the two"
            severity: Severity = "error" if needed else "warning"
            yield report("case-clash", str(path), message, severity=severity)
