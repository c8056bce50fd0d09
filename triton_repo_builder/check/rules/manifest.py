"""The manifest that ``trb build`` wrote against the files that are there."""

from __future__ import annotations

from collections.abc import Iterator

from triton_repo_builder import files
from triton_repo_builder.check.context import report
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.repository import Repository

BY_THE_SERVER = frozenset({"__pycache__"})
"""Files that running the models leaves behind."""


def check(repository: Repository) -> Iterator[Finding]:
    """Files changed, removed or added since the build; nothing if there is no manifest."""
    if repository.manifest is None:
        return
    recorded = repository.manifest.files
    for name, record in sorted(recorded.items()):
        file = repository.path / name
        if not file.is_file():
            message = "manifest.json lists this file, but it does not exist"
            remedy = f"get it with: trb fetch {repository.path}" if record.url else ""
            yield report("manifest-missing", str(file), message, remedy=remedy)
        elif files.hash_file(file) != record.sha256:
            yield report("manifest-changed", str(file), "changed since trb built it: its sha256 differs")
    built = {name.split("/")[0] for name in recorded if "/" in name}
    for model in repository.models:
        if model.name not in built:
            continue
        for file in sorted(model.path.rglob("*")):
            path = file.relative_to(repository.path)
            if file.is_file() and path.as_posix() not in recorded and not BY_THE_SERVER & set(path.parts):
                yield report("manifest-extra", str(file), "manifest.json does not list this file")
