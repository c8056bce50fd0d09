"""Several versions of an endpoint side by side, one of them served.

All versions of a model share one config.pbtxt, and labels, warm-up data and golden cases lie beside it. So
each version keeps its own copy of those in ``<model>/<version>/shared/``, and what lies in the model's folder
is a copy of the served version's, with a version policy that names it. An ensemble names the version of each
step: no request ever runs through the tokenizer of one version and the model of another.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from triton_repo_builder import files, repository
from triton_repo_builder.build.build import Build
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.files import File
from triton_repo_builder.repository import pbtxt

SHARED = repository.SHARED
CONFIG = "config.pbtxt"
POLICY = (
    "# Of the version folders this one is served; 'trb promote' and 'trb rollback' change it.\n"
    "version_policy {{ specific {{ versions: [ {} ] }} }}\n"
)
_POLICY = re.compile(r"(?:# Of the version folders .*\n)?^version_policy \{.*\}\n", re.MULTILINE)
_PIN = re.compile(r"^(\s*model_version: )-?\d+$", re.MULTILINE)
_OF_THE_SERVED = ("versions", "previous")
"""What an entry of the manifest says of the whole endpoint, not of one version."""
_TUNING = ("instance_group", "dynamic_batching", "version_policy", "model_warmup", "optimization")


def present(root: Path, models: Iterable[str]) -> tuple[int, ...]:
    """Version folders that all these models have, ascending."""
    found = [
        {int(f.name) for f in (root / model).glob("*") if f.is_dir() and repository.VERSION.fullmatch(f.name)}
        for model in models
    ]
    return tuple(sorted(set.intersection(*found))) if found else ()


def following(output: Path, name: str) -> int:
    """The number after the highest that the endpoint has; 1 for a new endpoint."""
    entry = _entry(output, name)
    if entry is None:
        return 1
    taken = [version for model in entry["models"] for version in present(output, [model])]
    return max(taken, default=0) + 1


def _entry(output: Path, name: str) -> Mapping[str, Any] | None:
    manifest = repository.read_manifest(output) if output.is_dir() else None
    entry: Mapping[str, Any] | None = (manifest or {"endpoints": {}})["endpoints"].get(name)
    return entry


def place(made: Build, output: Path, *, serve: bool, force: bool = False) -> Build:
    """The build as it has to be written beside the versions that are there; unchanged where there are none.

    A new version is served with ``serve``; one that was there stays what it was. Raises ``TrbError``.
    """
    old, version = _entry(output, made.name), made.plan.version
    if old is None:
        return made
    there = present(output, old["models"])
    if not {*there} - {version}:
        return made
    served = int(old["version"])
    if not force:
        _check(made, old, output)
    own = _shared_of(made)
    rest = tuple(file for file in made.files if _is_versioned(file.path, version))
    kept = {version: own}
    if served != version:
        kept[served] = stored(output, old["models"], served) or current(output, old["models"], served)
    now = version if (serve and version not in there) or served not in there else served
    written = [
        File(path=f"{path.split('/')[0]}/{number}/{SHARED}/{path.split('/', 1)[1]}", content=content)
        for number, shared in kept.items()
        for path, content in shared.items()
    ]
    front = [File(path=path, content=content) for path, content in serving(kept[now], (now,)).items()]
    entries = {**all_entries(old), version: made.entry}
    everything = tuple(
        sorted((*_linked(rest, output, version, served), *written, *front), key=lambda f: f.path)
    )
    previous = served if now != served else old.get("previous")
    notes = (*made.notes, _note(made.name, version, now))
    return replace(made, files=everything, entry=entry(entries, now, previous), notes=notes)


def _note(name: str, version: int, now: int) -> str:
    if version == now:
        return f"version {now} of '{name}' is served now; 'trb rollback {name}' goes back"
    return f"version {now} of '{name}' stays the one that is served; 'trb promote {name} --version {version}'"


def _check(made: Build, old: Mapping[str, Any], output: Path) -> None:
    """All versions of a model are loaded with one config.pbtxt while one takes over from another."""
    others = f"version {old['version']}"
    if old.get("shared") or [model.name for model in made.plan.models] != old["models"]:
        raise _other(made.name, f"{others} is made of other models, or of models that endpoints share")
    new = {file.path: file.content for file in made.files if file.path.endswith(f"/{CONFIG}")}
    for model in old["models"]:
        before = read_config(output / model / CONFIG)
        after = pbtxt.parse(new[f"{model}/{CONFIG}"].decode())
        field = unlike(before, after)
        if field:
            raise _other(f"{made.name}: {model}", f"{others} has another {field}")


def _other(where: str, message: str) -> TrbError:
    return TrbError(
        Code.OUTPUT_FOREIGN,
        f"{message}, and all versions of a model share one config.pbtxt",
        where=where,
        remedy="build it under another --name, or with --force if the older versions need not be served",
    )


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The first field in which two configurations mean something else to a version; empty where none."""
    left, right = (_meaning(config) for config in (one, other))
    return next((field for field in sorted({*left, *right}) if left.get(field) != right.get(field)), "")


def _meaning(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a version's answers depend on: no sizes of pools and queues, no provenance."""
    backend = config.get("backend", "")
    found = {key: value for key, value in config.items() if key not in (*_TUNING, "parameters")}
    for key, value in config.get("parameters", {}).items():
        settings = backend == "onnxruntime" and not key.startswith("ragged")
        if not key.startswith("trb.") and not settings:
            found[f"parameter {key}"] = value
    steps = config.get("ensemble_scheduling", {}).get("step", [])
    if steps:
        found["ensemble_scheduling"] = [{k: v for k, v in s.items() if k != "model_version"} for s in steps]
    return found


def _is_versioned(path: str, version: int) -> bool:
    return path.split("/")[1] == str(version)


def _shared_of(made: Build) -> dict[str, bytes]:
    """What a build writes outside its version folders, as its version wants it."""
    return {
        file.path: pinned(
            file.path, file.source.read_bytes() if file.source else file.content, made.plan.version
        )
        for file in made.files
        if not _is_versioned(file.path, made.plan.version)
    }


def pinned(path: str, content: bytes, version: int) -> bytes:
    """A config.pbtxt without policy, and an ensemble's with its steps at ``version``; else the content."""
    if not path.endswith(f"/{CONFIG}"):
        return content
    text = _POLICY.sub("", content.decode("utf-8", "surrogateescape"))  # a user's, with --force
    return _PIN.sub(rf"\g<1>{version}", text).encode("utf-8", "surrogateescape")


def stored(root: Path, models: Iterable[str], version: int) -> dict[str, bytes]:
    """What a version keeps in ``shared/``, by the path where it lies when it is served; empty without."""
    found = {}
    for model in models:
        folder = root / model / str(version) / SHARED
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                found[f"{model}/{file.relative_to(folder).as_posix()}"] = file.read_bytes()
    return found


def read_config(file: Path) -> dict[str, Any]:
    """A config.pbtxt. Raises ``TrbError`` REPOSITORY_UNREADABLE."""
    try:
        return pbtxt.parse(file.read_text(encoding="utf-8"))
    except (pbtxt.PbtxtError, OSError, UnicodeDecodeError) as error:
        raise unreadable(file, error) from None


def unreadable(file: Path, error: Exception) -> TrbError:
    """What is wrong with a config.pbtxt, as one error."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return TrbError(
        Code.REPOSITORY_UNREADABLE,
        f"is no configuration that can be read: {reason}",
        where=str(file),
        remedy="restore the file (git checkout), or build that version again",
    )


def current(root: Path, models: Iterable[str], version: int) -> dict[str, bytes]:
    """What lies outside the version folders, of the files that ``trb`` wrote."""
    manifest = repository.read_manifest(root) or {"files": {}}
    found = {}
    for path in manifest["files"]:
        model, *rest = path.split("/")
        if model in models and rest and not repository.VERSION.fullmatch(rest[0]) and (root / path).is_file():
            found[path] = pinned(path, (root / path).read_bytes(), version)
    return found


def serving(shared: Mapping[str, bytes], versions: Iterable[int]) -> dict[str, bytes]:
    """The same files as they lie in the models' folders while these versions are loaded."""
    policy = POLICY.format(", ".join(map(str, versions))).encode()
    return {
        path: content + (policy if path.endswith(f"/{CONFIG}") else b"") for path, content in shared.items()
    }


def _linked(new: Iterable[File], output: Path, version: int, served: int) -> Iterable[File]:
    """Files that are those of the served version become links to them."""
    recorded = (repository.read_manifest(output) or {"files": {}})["files"]
    for file in new:
        model, _, rest = file.path.split("/", 2)
        twin = f"{model}/{served}/{rest}"
        if version != served and twin in recorded and (output / twin).is_file():
            fact = recorded[twin]
            same = fact["bytes"] == file.size() and fact["sha256"] == file.sha256()
            if same and files.hash_file(output / twin) == fact["sha256"]:
                yield File(path=file.path, source=output / twin)
                continue
        yield file


def all_entries(entry: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Each version's own entry."""
    own = {key: value for key, value in entry.items() if key not in _OF_THE_SERVED}
    return {int(entry["version"]): own, **{int(v): dict(e) for v, e in entry.get("versions", {}).items()}}


def entry(entries: Mapping[int, Mapping[str, Any]], served: int, previous: Any = None) -> dict[str, Any]:
    """The endpoint's entry where ``served`` is served."""
    others = {}
    for version, each in sorted(entries.items()):
        if version != served:
            others[str(version)] = dict(each) | {"cases": _cases(each, version, served=False)}
    mine = dict(entries[served])
    return {
        **mine,
        "cases": _cases(mine, served, served=True),
        **({"previous": previous} if previous in entries and previous != served else {}),
        **({"versions": others} if others else {}),
    }


def _cases(entry: Mapping[str, Any], version: int, *, served: bool) -> str | None:
    if not entry.get("cases"):
        return None
    parts = str(entry["cases"]).split("/")
    return f"{parts[0]}/{parts[-1]}" if served else f"{parts[0]}/{version}/{SHARED}/{parts[-1]}"


def prune(root: Path, name: str, keep: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Remove all versions but the newest ``keep``, the served one and the one before.

    Returns those that were removed, and files of the user's own for which one was left as it is.
    """
    manifest = repository.read_manifest(root)
    if manifest is None or name not in manifest["endpoints"]:
        return (), ()
    old = manifest["endpoints"][name]
    there = present(root, old["models"])
    stay = {*there[-keep:], int(old["version"]), old.get("previous")}
    kept: list[str] = []
    gone: list[int] = []
    for version in there:
        if version not in stay:
            foreign = _foreign(root, manifest, [f"{model}/{version}" for model in old["models"]])
            kept += foreign
            gone += [] if foreign else [version]
    if not gone:
        return (), tuple(kept)
    entries = {v: e for v, e in all_entries(old).items() if v not in gone}
    folders = [f"{model}/{version}/" for model in old["models"] for version in gone]
    endpoints = {**manifest["endpoints"], name: entry(entries, int(old["version"]), old.get("previous"))}
    left = {p: f for p, f in manifest["files"].items() if not p.startswith(tuple(folders))}
    write_manifest(root, {**manifest, "endpoints": endpoints, "files": left})
    for folder in folders:
        shutil.rmtree(root / folder)
    return tuple(gone), tuple(kept)


def _foreign(root: Path, manifest: Mapping[str, Any], folders: Sequence[str]) -> list[str]:
    """Files in these folders that are not as ``trb`` wrote them."""
    found = []
    for file in sorted(path for folder in folders for path in (root / folder).rglob("*") if path.is_file()):
        path = file.relative_to(root).as_posix()
        fact = manifest["files"].get(path)
        if fact is None or files.hash_file(file) != fact["sha256"]:
            found.append(path)
    return found


def write_manifest(root: Path, manifest: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    files.write(root / repository.MANIFEST, text.encode())
