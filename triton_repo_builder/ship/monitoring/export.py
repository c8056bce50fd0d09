"""The files of an export: rendered, compared with a folder, and written into it, all or none."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base import files, templates
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import some
from triton_repo_builder.repository import Repository
from triton_repo_builder.run.observe import drift_rules
from triton_repo_builder.ship.monitoring import boards, rules, source
from triton_repo_builder.ship.monitoring.rules import Settings

INDEX = "monitoring.json"
"""The files of an export with their sha256: what was edited since is not overwritten."""
RULES = "rules.yml"
GRAFANA = "grafana"
FOLDER = "/var/lib/grafana/dashboards/trb"
"""Folder of the dashboards inside Grafana's container."""
SHOWN = 5
"""Endpoints that a file's head names."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A file that is not as an export would write it."""

    path: str
    state: str
    """``missing``, ``differs`` or ``stale``."""
    edited: bool
    """It was edited since trb wrote it, so that only ``force`` replaces it."""


def render(repository: Repository, settings: Settings) -> dict[str, bytes]:
    """Path and content of each file, the index last; the same input gives the same bytes."""
    facts = source.read(repository)
    jobs = [(rules.SERVER, settings.targets), (rules.GATEWAY, settings.gateways)]
    drift = {"drift.yml": drift_rules.render(settings.drift_window)} if facts.counting else {}
    texts = {
        **drift,
        "prometheus.yml": templates.render(
            "monitoring_prometheus.yml.jinja",
            rule_files=[RULES, *drift],
            jobs=[job for job in jobs if job[1]],
            alertmanagers=settings.alertmanagers,
        ),
        RULES: templates.render(
            "monitoring_rules.yml.jinja",
            endpoints=some([ascii(each.name)[1:-1] for each in facts.endpoints], SHOWN),
            objective=settings.objective,
            window=settings.window,
            groups=rules.groups(facts, settings),
        ),
        f"{GRAFANA}/provisioning.yml": templates.render("monitoring_grafana.yml.jinja", folder=FOLDER),
    }
    for name, board in boards.boards(facts, settings):
        texts[f"{GRAFANA}/{name}"] = _json(board.to_json())
    contents = {path: text.encode() for path, text in sorted(texts.items())}
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}
    return {**contents, INDEX: _json({"files": digests}).encode()}


def differences(contents: Mapping[str, bytes], output: Path) -> tuple[Difference, ...]:
    """Compare a folder with an export. Raises ``TrbError`` for a folder that holds something else."""
    recorded = _recorded(output)
    if (output / GRAFANA).is_symlink():
        raise TrbError(
            Code.OUTPUT_FOREIGN,
            "is a link: files would be written elsewhere",
            where=str(output / GRAFANA),
            remedy="remove the link, or choose another folder with --output",
        )
    states = {path: _state(output / path, content) for path, content in contents.items()}
    states |= {path: "stale" for path in recorded if path not in contents and (output / path).is_file()}
    return tuple(
        Difference(path=path, state=state, edited=_edited(output / path, recorded.get(path)))
        for path, state in sorted(states.items())
        if state
    )


def write(contents: Mapping[str, bytes], output: Path, *, force: bool = False) -> tuple[Difference, ...]:
    """Write what differs, and remove stale files. Other files of the folder stay.

    Raises ``TrbError`` OUTPUT_FOREIGN, EDITED_FILE, OUTPUT_NOT_WRITABLE, DISK_FULL; then nothing was changed.
    """
    changes = differences(contents, output)
    edited = [change.path for change in changes if change.edited]
    if edited and not force:
        raise TrbError(
            Code.EDITED_FILE,
            f"{some(edited)}: edited since trb wrote them",
            where=str(output),
            remedy="keep your edits elsewhere, or replace them with --force",
        )
    staging = output / f".trb-{secrets.token_hex(8)}"
    try:
        for change in changes:
            (staging / change.path).parent.mkdir(parents=True, exist_ok=True)
            (output / change.path).parent.mkdir(parents=True, exist_ok=True)
            if change.path in contents:
                files.create(staging / change.path, contents[change.path])
        # Nothing but renames is left to fail; the index comes last.
        for change in sorted(changes, key=lambda each: each.path == INDEX):
            if change.path in contents:
                (staging / change.path).replace(output / change.path)
            else:
                (output / change.path).unlink()
    except OSError as error:
        raise files.explain(error, output, how="with --output", kept="nothing was written") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return changes


def _json(document: object) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _recorded(output: Path) -> dict[str, str]:
    """The index of a folder: path → sha256; empty for a new folder."""
    try:
        if not output.exists() or (output.is_dir() and not any(output.iterdir())):
            return {}
        if not output.is_dir():
            raise TrbError(
                Code.OUTPUT_FOREIGN,
                "is a file, not a folder",
                where=str(output),
                remedy="choose another folder with --output",
            )
        document = files.load_json(files.read(output / INDEX, files.LARGEST_DOCUMENT))
        listed = {str(path): str(digest) for path, digest in document["files"].items()}
    except (FileNotFoundError, *files.DAMAGED):
        raise TrbError(
            Code.OUTPUT_FOREIGN,
            f"holds files but no {INDEX} of trb; nothing was touched",
            where=str(output),
            remedy="choose an empty or a new folder with --output",
        ) from None
    except OSError as error:
        raise files.unreadable(output, error, code=Code.OUTPUT_NOT_WRITABLE) from None
    return {path: digest for path, digest in listed.items() if _inside(path)}


def _inside(path: str) -> bool:
    """Whether a path of the index is one that an export may have: stale files are removed."""
    name = path.removeprefix(f"{GRAFANA}/")
    return "/" not in name and name.endswith((".yml", ".json")) and not name.startswith(".")


def _state(file: Path, content: bytes) -> str:
    if not file.is_file() or file.is_symlink():
        return "missing"
    try:
        return "" if files.read(file) == content else "differs"
    except OSError as error:
        raise files.unreadable(file, error, code=Code.OUTPUT_NOT_WRITABLE) from None


def _edited(file: Path, digest: str | None) -> bool:
    """Whether the user changed a file that an export would replace; the index itself is ours."""
    try:
        return file.name != INDEX and file.is_file() and files.hash_file(file) != digest
    except OSError as error:
        raise files.unreadable(file, error, code=Code.OUTPUT_NOT_WRITABLE) from None
