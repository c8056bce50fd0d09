"""The chosen setting in the files: config.pbtxt with the measured reason, trb.toml, manifest.json."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.render import provenance
from triton_repo_builder.measure.tune import edit, factors
from triton_repo_builder.measure.tune.factors import OFF, Setting, Value
from triton_repo_builder.measure.tune.report import Report
from triton_repo_builder.repository import (
    CONFIG,
    MANIFEST,
    Repository,
    content,
    integrity,
    pbtxt,
)
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.journal import staging, undo
from triton_repo_builder.repository.manifest import FileRecord
from triton_repo_builder.repository.pbtxt import PbtxtError

_TABLE = re.compile(r"^[ \t]*\[build\][ \t]*(?:#.*)?$", re.MULTILINE)
_ANY_TABLE = re.compile(r"^\s*\[", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A file that changes."""

    path: Path
    shown: str
    """Name in the diff."""
    old: str
    new: str

    @property
    def diff(self) -> str:
        """Unified diff."""
        lines = difflib.unified_diff(
            self.old.splitlines(keepends=True), self.new.splitlines(keepends=True), self.shown, self.shown
        )
        return "".join(lines)


def reason(report: Report) -> str:
    """The measured improvement, for a comment."""
    chosen = next(each for each in report.compared if each.name == report.chosen)
    default = report.compared[0]
    return f"trb tune: {chosen.capacity:.0f} requests/s with {report.objective}; before, " + (
        f"{default.capacity:.0f}" if default.capacity else "it held at no rate"
    )


def changes(report: Report, repository: Repository, config: Path | None) -> tuple[Change, ...]:
    """Changes of the chosen setting; of several variants, in the chosen one.

    ``trb.toml`` describes the endpoint, so a variant's setting is not written there.
    """
    base = {name: _default(report, name) for name in report.space}
    edits = []
    configs = _wanted(report, repository, base)
    for model, raw in configs.items():
        path = repository.path / model / CONFIG
        stored_model = repository.model(model)
        assert stored_model is not None and stored_model.text is not None
        try:
            text = files.read(path).decode("utf-8")
            if _lines(text) != stored_model.text:
                raise _changed(path)
            new = _ended(edit.change(_lines(text), raw, reason(report)), text)
        except (PbtxtError, ValueError) as error:
            raise TrbError(
                Code.REPOSITORY_UNREADABLE,
                f"cannot be edited: {error}",
                where=str(path),
                remedy="edit it by hand",
            ) from None
        if new != text:
            edits.append(Change(path=path, shown=f"{model}/{CONFIG}", old=text, new=new))
    if config and config.is_file() and chosen(report) == report.endpoint:
        text = _toml(config)
        if not _describes(config, text, repository):
            return tuple(edits)
        try:
            new = _ended(toml(_lines(text), options(report, base)), text)
        except ValueError as error:
            listed = ", ".join(f"{key} = {value}" for key, value in options(report, base).items())
            raise TrbError(
                Code.USAGE,
                f"{error}; nothing was written",
                where=str(config),
                remedy=f"write {listed} into its [build] by hand, or run tune in another folder",
            ) from None
        if new != text:
            edits.append(Change(path=config, shown=config.name, old=text, new=new))
    return tuple(edits)


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _ended(text: str, like: str) -> str:
    """The text with Windows line ends if all lines of ``like`` have them."""
    return text.replace("\n", "\r\n") if "\r\n" in like and "\n" not in like.replace("\r\n", "") else text


def _toml(config: Path) -> str:
    """The text of a trb.toml that ``trb build`` can read. Raises ``TrbError`` USAGE."""
    try:
        text = files.read(config, files.LARGEST_TOML).decode("utf-8")
        files.load_toml(text)
    except (OSError, ValueError) as error:
        remedy = "correct the file, or run tune in another folder"
        raise TrbError(
            Code.USAGE,
            f"cannot be read: {error}; nothing was written",
            where=str(config),
            remedy=remedy,
        ) from None
    return text


def _describes(config: Path, text: str, repository: Repository) -> bool:
    """Whether a trb.toml is of this repository: it may name another one."""
    table = files.load_toml(text).get("build")
    output = table.get("output") if isinstance(table, dict) else None
    return not isinstance(output, str) or (config.parent / output).resolve() == repository.path.resolve()


def chosen(report: Report) -> str:
    """The endpoint of the chosen setting: clients call it."""
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
    """The setting as options of ``trb build``, without defaults."""
    names = {factors.INSTANCES: "instances", factors.THREADS: "threads", factors.MAX_BATCH: "max-batch-size"}
    chosen_options: dict[str, Value] = {}
    for name, value in factors.canonical(report.setting).items():
        if value == factors.canonical(base).get(name):
            continue
        if name == factors.BATCHING:
            chosen_options["batching"] = OFF if value == OFF else "on"
            if value != OFF:
                chosen_options["max-queue-delay"] = f"{value}us"
        elif name in names:
            chosen_options[names[name]] = value
        elif name.endswith(factors.INSTANCES):
            chosen_options["tokenizer-instances"] = value
    return chosen_options


def toml(text: str, values: Mapping[str, Value]) -> str:
    """A trb.toml with these options in its table [build]. Raises ``ValueError`` if that cannot be."""
    before = files.load_toml(text)
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
    edited = head + table + tail
    old_options = {key.replace("-", "_"): value for key, value in before.get("build", {}).items()}
    new_options = {**old_options, **{key.replace("-", "_"): value for key, value in values.items()}}
    try:
        after = files.load_toml(edited)
        read_options = {key.replace("-", "_"): value for key, value in after.get("build", {}).items()}
    except ValueError:
        read_options = {}
    if read_options != new_options or {**before, "build": 0} != {**after, "build": 0}:
        raise ValueError("its [build] is written in a way that tune cannot edit")
    return edited


@contextmanager
def written(report: Report, repository: Repository, edits: tuple[Change, ...]) -> Iterator[None]:
    """Write the edits; if the ``with`` block fails, files are restored; after a kill, by the next trb.

    Raises ``TrbError`` EDITED_FILE, REPOSITORY_BUSY, DISK_FULL, OUTPUT_NOT_WRITABLE; nothing changed then.
    """
    root = repository.path
    with staging.exclusive(root):
        for change in edits:
            _unchanged(change.path, change.old)
        contents = _contents(report, repository, edits)
        outside = {
            change.path: change.old.encode() for change in edits if not change.path.is_relative_to(root)
        }
        try:
            with undo.undoable(root, {path: {data} for path, data in contents.items()}):
                for path, data in contents.items():
                    files.write(root / path, data)
                for change in edits:
                    if change.path in outside:
                        files.write(change.path, change.new.encode())
                yield
        except BaseException as error:
            for file, before in outside.items():
                if files.read(file) != before:
                    files.write(file, before)
            if isinstance(error, OSError):
                raise files.explain(error, root) from None
            raise


def _unchanged(path: Path, read: str) -> None:
    """Raise ``TrbError`` EDITED_FILE if a file is not what was read."""
    if files.read(path) != read.encode():
        raise _changed(path)


def _changed(path: Path) -> TrbError:
    return TrbError(
        Code.EDITED_FILE,
        "changed while it was tuned; nothing was written",
        where=str(path),
        remedy="what was measured is of another repository: run tune again when nobody edits it",
    )


def _contents(report: Report, repository: Repository, edits: tuple[Change, ...]) -> dict[str, bytes]:
    """New contents of the repository's files; manifest.json, with their digests and the options, is last.

    The endpoint's config.pbtxt states the digest of the whole content itself.
    """
    root, recorded, endpoint = repository.path, repository.manifest, chosen(report)
    contents = {
        change.path.relative_to(root).as_posix(): change.new.encode()
        for change in edits
        if change.path.is_relative_to(root)
    }
    if recorded is None or endpoint not in recorded.endpoints:
        return contents
    base = {name: _default(report, name) for name in report.space}
    edited = {each.path for each in integrity.altered(root, recorded.files)}
    entry = recorded.endpoints[endpoint]
    version = entry.served.version
    build_options = dict(entry.served.options or {})
    build_options |= {key.replace("-", "_"): _recorded(value) for key, value in options(report, base).items()}
    build_options = dict(sorted(build_options.items()))
    config_path = f"{endpoint}/{CONFIG}"

    digests = content.listing(root, recorded, endpoint, version)
    for path in digests.keys() & contents.keys():
        digests[path] = content.hashed(path, contents[path], endpoint, version)
    digest = content.digest(digests)
    contents[config_path] = content.sealed(
        contents.get(config_path) or files.read(root / config_path), digest
    )
    size = ModelConfig(pbtxt.parse(contents[config_path].decode("utf-8"))).max_batch_size
    served = replace(
        entry.served,
        options=build_options,
        options_digest=provenance.digest(build_options),
        content=digest,
        endpoint=replace(entry.served.endpoint, max_batch_size=size),
    )
    records = dict(recorded.files)
    for path, data in contents.items():
        # What the user had edited stays an edit, which no build overwrites.
        if path in records and path not in edited:
            records[path] = FileRecord(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    endpoints = {**recorded.endpoints, endpoint: replace(entry, served=served)}
    contents[MANIFEST] = replace(recorded, endpoints=endpoints, files=records).to_text().encode()
    return contents


def _recorded(value: Value) -> Value:
    """``max_queue_delay`` is recorded in microseconds."""
    return int(value.removesuffix("us")) if isinstance(value, str) and value.endswith("us") else value
