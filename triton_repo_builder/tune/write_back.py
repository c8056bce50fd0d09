"""The chosen setting in the files: config.pbtxt with the measured reason, trb.toml, manifest.json."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triton_repo_builder import files
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.render import provenance
from triton_repo_builder.repository import (
    CONFIG,
    MANIFEST,
    Repository,
    content,
    integrity,
    manifest,
    pbtxt,
)
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.manifest import FileRecord, Manifest
from triton_repo_builder.repository.pbtxt import PbtxtError
from triton_repo_builder.tune import edit, factors
from triton_repo_builder.tune.factors import OFF, Setting, Value
from triton_repo_builder.tune.report import Report

_TABLE = re.compile(r"^[ \t]*\[build\][ \t]*(?:#.*)?$", re.MULTILINE)
_ANY_TABLE = re.compile(r"^\s*\[", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A file that changes."""

    path: Path
    shown: str
    """Its name in the diff."""
    old: str
    new: str

    @property
    def diff(self) -> str:
        """Unified."""
        lines = difflib.unified_diff(
            self.old.splitlines(keepends=True), self.new.splitlines(keepends=True), self.shown, self.shown
        )
        return "".join(lines)


def reason(report: Report) -> str:
    """What was measured, for a comment."""
    chosen = next(each for each in report.compared if each.name == report.chosen)
    default = report.compared[0]
    return f"trb tune: {chosen.capacity:.0f} requests/s with {report.objective}; before, " + (
        f"{default.capacity:.0f}" if default.capacity else "it held at no rate"
    )


def changes(report: Report, repository: Repository, config: Path | None) -> tuple[Change, ...]:
    """What the chosen setting changes, of the variant that was chosen if there are several.

    ``trb.toml`` describes the endpoint, so a variant's setting is not written there.
    """
    base = {name: _default(report, name) for name in report.space}
    made = []
    wanted = _wanted(report, repository, base)
    for model, raw in wanted.items():
        path = repository.path / model / CONFIG
        text = path.read_text(encoding="utf-8")
        try:
            new = edit.change(text, raw, reason(report))
        except (PbtxtError, ValueError) as error:
            raise TrbError(
                Code.REPOSITORY_UNREADABLE,
                f"cannot be edited: {error}",
                where=str(path),
                remedy="edit it by hand",
            ) from None
        if new != text:
            made.append(Change(path=path, shown=f"{model}/{CONFIG}", old=text, new=new))
    if config and config.is_file() and chosen(report) == report.endpoint:
        text = config.read_text(encoding="utf-8")
        new = toml(text, options(report, base))
        if new != text:
            made.append(Change(path=config, shown=config.name, old=text, new=new))
    return tuple(made)


def chosen(report: Report) -> str:
    """The endpoint that the chosen setting is of: clients call it."""
    return str(report.setting.get(factors.VARIANT, report.endpoint))


def _default(report: Report, name: str) -> Value:
    assert report.default is not None
    return report.default.setting[name]


def _wanted(report: Report, repository: Repository, base: Setting) -> dict[str, dict[str, Any]]:
    configs = {}
    for name in _members(repository, chosen(report)):
        model = repository.model(name)
        if model is None or model.text is None:
            raise TrbError(
                Code.REPOSITORY_UNREADABLE,
                f"has no {CONFIG}, which would change",
                where=str(repository.path / name),
                remedy="write one: GET /v2/models/NAME/config of a running server shows what it assumed",
            )
        configs[name] = ModelConfig(model.config.raw)
    subject = factors.subject(chosen(report), configs)
    return factors.configs(subject, report.setting, base)


def _members(repository: Repository, endpoint: str) -> tuple[str, ...]:
    from triton_repo_builder.repository import composition

    return composition.members((endpoint,), repository.steps_of)


def options(report: Report, base: Setting) -> dict[str, Value]:
    """The setting as options of ``trb build``, those that differ from the default."""
    names = {factors.INSTANCES: "instances", factors.THREADS: "threads", factors.MAX_BATCH: "max-batch-size"}
    made: dict[str, Value] = {}
    for name, value in factors.canonical(report.setting).items():
        if value == factors.canonical(base).get(name):
            continue
        if name == factors.BATCHING:
            made["batching"] = OFF if value == OFF else "on"
            if value != OFF:
                made["max-queue-delay"] = f"{value}us"
        elif name in names:
            made[names[name]] = value
        elif name.endswith(factors.INSTANCES):
            made["tokenizer-instances"] = value
    return made


def toml(text: str, values: Mapping[str, Value]) -> str:
    """A trb.toml with these options in its table [build]."""
    text = text if text.endswith("\n") or not text else text + "\n"
    match = _TABLE.search(text)
    if match is None:
        text, begin = f"{text.rstrip()}\n\n[build]\n".lstrip(), 0
        begin = len(text)
    else:
        begin = text.index("\n", match.end()) + 1
    following = _ANY_TABLE.search(text, begin)
    end = following.start() if following else len(text)
    head, table, tail = text[:begin], text[begin:end], text[end:]
    for key, value in values.items():
        line = f"{key} = " + (f'"{value}"' if isinstance(value, str) else str(value))
        pattern = re.compile(rf"^\s*{re.escape(key).replace('-', '[-_]')}\s*=.*$", re.MULTILINE)
        if pattern.search(table):
            table = pattern.sub(line, table, count=1)
        else:
            table = f"{table.rstrip()}\n{line}\n" if table.strip() else f"{line}\n{table}"
    return head + table + tail


@contextmanager
def written(report: Report, repository: Repository, made: tuple[Change, ...]) -> Iterator[None]:
    """Write them; every file is put back if the ``with`` block fails."""
    paths = [change.path for change in made]
    recorded, endpoint = repository.manifest, chosen(report)
    kept = {path: path.read_bytes() for path in paths}
    if recorded and endpoint in recorded.endpoints:
        for extra in (repository.path / MANIFEST, repository.path / endpoint / CONFIG):
            kept.setdefault(extra, extra.read_bytes())
    edited = {each.path for each in integrity.altered(repository.path, recorded.files)} if recorded else set()
    try:
        for change in made:
            files.write(change.path, change.new.encode())
        if recorded and endpoint in recorded.endpoints:
            _record(report, repository.path, recorded, made, edited)
        yield
    except BaseException:
        for path, before in kept.items():
            files.write(path, before)
        raise


def _record(
    report: Report, root: Path, recorded: Manifest, made: tuple[Change, ...], edited: set[str]
) -> None:
    """The manifest with the new files, options and content digest, which the endpoint states itself."""
    base = {name: _default(report, name) for name in report.space}
    endpoint = chosen(report)
    entry = recorded.endpoints[endpoint]
    asked = dict(entry.served.options or {})
    asked |= {key.replace("-", "_"): _recorded(value) for key, value in options(report, base).items()}
    asked = dict(sorted(asked.items()))
    digest = content.of_version(root, recorded, endpoint, entry.served.version)
    own = root / endpoint / CONFIG
    files.write(own, content.sealed(own.read_bytes(), digest))
    size = ModelConfig(pbtxt.parse(own.read_text(encoding="utf-8"))).max_batch_size
    served = replace(
        entry.served,
        options=asked,
        options_digest=provenance.digest(asked),
        content=digest,
        endpoint=replace(entry.served.endpoint, max_batch_size=size),
    )
    records = dict(recorded.files)
    for path in {*(change.path for change in made), own}:
        name = path.relative_to(root).as_posix() if path.is_relative_to(root) else ""
        # What the user had edited stays an edit, which no build overwrites.
        if name in records and name not in edited:
            records[name] = FileRecord(sha256=files.hash_file(path), bytes=path.stat().st_size)
    endpoints = {**recorded.endpoints, endpoint: replace(entry, served=served)}
    manifest.write(root, replace(recorded, endpoints=endpoints, files=records))


def _recorded(value: Value) -> Value:
    """``max_queue_delay`` is recorded in microseconds."""
    return int(value.removesuffix("us")) if isinstance(value, str) and value.endswith("us") else value
