"""A first ``deploy.toml``: every key with its meaning, those at their default as comments."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.option_values import Bytes, InvalidValue, Seconds, Value
from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.run.client import admin_key
from triton_repo_builder.ship.stores import revision
from triton_repo_builder.ship.targets import facts
from triton_repo_builder.ship.targets.spec import (
    STORES,
    From,
    Gateway,
    Name,
    RepositorySource,
    Server,
    Source,
    Spec,
    parse,
)

HEAD = """# A deployment, for trb export and trb canary. Commented keys show their defaults.
# Paths are relative to this file.
"""

UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}


def write(
    repo: Path, file: Path, *, name: str, image: str, gateway: str, source: str, force: bool
) -> tuple[list[tuple[Path, str]], tuple[str, ...]]:
    """Write the file, and the key if there is none. Returns what was written, with a remark each, and notes.

    Raises ``TrbError``; then nothing was written.
    """
    if file.exists() and not force:
        raise TrbError(
            Code.OUTPUT_FOREIGN,
            "is there already",
            where=str(file),
            remedy="edit it, or replace it with --force",
        )
    read = repository.read(repo)
    endpoints = [model.name for model in read.endpoints if model.stated]
    if not endpoints:
        raise facts.no_model(repo)
    folder = file.parent.resolve()
    path = repo.resolve()
    relative = Path(os.path.relpath(path, folder))
    contents = revision.collect(repo)
    spec = Spec(
        name=name or _name(endpoints[0]),
        repository=RepositorySource(
            path=relative,
            revision=f"sha256:{contents.index.digest}",
            source=_source(_with_revision(source, contents.index.digest)),
        ),
        server=Server(image=image),
        gateway=Gateway(image=gateway),
    )
    content = text(spec)
    written = parse(content, file)
    # The file's folder need not be there yet, and a path through it leads nowhere.
    deployment = facts.read(
        file, replace(written, repository=replace(written.repository, path=repo)), secrets=False
    )
    key = written.exposure.admin_key
    fresh = write_key(key)
    try:
        files.write(file, content.encode())
    except TrbError:
        if fresh:
            key.unlink(missing_ok=True)
        raise
    written_files = [
        (file, ""),
        *([(key, "     the key of the administrative APIs: keep it out of git")] * fresh),
    ]
    return written_files, facts.notes(deployment)


def _name(endpoint: str) -> str:
    """A name that every platform takes, of an endpoint's."""
    plain = re.sub(r"[^a-z0-9]+", "-", endpoint.lower()).strip("-")[: Name.longest].rstrip("-")
    return plain if plain[:1].isalpha() else f"m-{plain}"[: Name.longest].rstrip("-")


def _with_revision(source: str, digest: str) -> str:
    """The address that ``trb push`` prints for this repository, if a bucket's URL names no revision."""
    scheme, _, rest = source.partition("://")
    return f"{source}@sha256:{digest}" if rest and "@" not in rest and scheme in STORES else source


def _source(source: str) -> Source:
    try:
        return From().parse(source)
    except InvalidValue as error:
        raise TrbError(Code.USAGE, error.message, where="--source", remedy=error.remedy) from None


def text(spec: Spec) -> str:
    """The file. Values that differ from their default are set."""
    return HEAD + "\n".join(_lines(spec, "")).rstrip() + "\n"


def write_key(file: Path) -> bool:
    """Make a key of the administrative APIs, readable for this user only; False if there is a valid one."""
    if file.is_file():
        admin_key.read(file)
        return False
    files.write(file, f"{secrets.token_urlsafe(32)}\n".encode(), private=True, replace=False)
    return True


def _lines(table: Any, prefix: str) -> Iterator[str]:
    inner = []
    for each in fields(table):
        value = getattr(table, each.name)
        if each.metadata.get("nested"):
            inner.append((each.name, value))
            continue
        entry = each.metadata["option"]
        shown = f" Default: {entry.default}." if entry.default else ""
        yield f"# {entry.help}{shown}"
        default = None if each.default is MISSING else each.default
        comment = "# " if value == default else ""
        yield f"{comment}{each.name} = {toml(value, entry.value)}"
    for name, value in inner:
        yield f"\n[{prefix}{name}]"
        yield from _lines(value, f"{prefix}{name}.")


def toml(value: Any, kind: Value) -> str:
    """A value as deploy.toml writes it."""
    if isinstance(kind, Seconds):
        return f'"{_number(value)}s"'
    if isinstance(kind, Bytes):
        unit, size = next((unit, size) for unit, size in UNITS.items() if value % size == 0 or unit == "KiB")
        return f'"{_number(value / size)}{unit}"'
    if isinstance(value, Objective):
        return f'"{value.percentile}={_number(value.ms)}ms"'
    if isinstance(value, Source):
        value = value.location or value.kind
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, (int, float)):
        return _number(value)
    # A basic string of TOML takes JSON's escapes.
    return json.dumps("" if value is None else str(value), ensure_ascii=False)


def _number(value: float) -> str:
    """A number without an exponent, which durations and TOML's whole numbers do not have."""
    return f"{Decimal(repr(value)):f}".removesuffix(".0")
