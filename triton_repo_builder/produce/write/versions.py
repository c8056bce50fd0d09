"""Several versions of an endpoint side by side, one of them served.

All versions of a model share one config.pbtxt, and labels, warm-up data and golden cases are beside it. So
each version keeps its own copy of them in ``<model>/<version>/shared/``. The files in the model's folder are
copies of the served version's, with a version policy that names it. An ensemble names the version of each
step: no request ever runs through the tokenizer of one version and the model of another.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import File
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce.write.built import BuiltEndpoint
from triton_repo_builder.repository import CONFIG, SHARED, Manifest, manifest, pbtxt
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.content import pinned
from triton_repo_builder.repository.manifest import EndpointEntry, VersionEntry
from triton_repo_builder.repository.provenance import PREFIX

Built = TypeVar("Built", bound=BuiltEndpoint)
_TUNING = ("instance_group", "dynamic_batching", "version_policy", "model_warmup", "optimization")


def present(root: Path, models: Iterable[str]) -> tuple[int, ...]:
    """Version folders that all these models have, ascending."""
    folders = [
        {int(f.name) for f in (root / model).glob("*") if f.is_dir() and repository.VERSION.fullmatch(f.name)}
        for model in models
    ]
    return tuple(sorted(set.intersection(*folders))) if folders else ()


def following(output: Path, name: str) -> int:
    """The number after the highest that the endpoint has; 1 for a new endpoint."""
    entry = _entry(output, name)
    if entry is None:
        return 1
    existing = [version for model in entry.models for version in present(output, [model])]
    return max(existing, default=0) + 1


def _entry(output: Path, name: str) -> EndpointEntry | None:
    recorded = manifest.read(output)
    return recorded.endpoints.get(name) if recorded else None


def place(build: Built, output: Path, *, serve: bool, force: bool = False) -> Built:
    """The build as written beside the endpoint's other versions; unchanged if there are none.

    A new version is served with ``serve``; an existing version keeps its state. Raises ``TrbError``.
    """
    old, version = _entry(output, build.name), build.version
    if old is None:
        return build
    numbers = present(output, old.models)
    if not {*numbers} - {version}:
        return build
    served = old.served.version
    if not force:
        _check(build, old, output)
    build_shared = shared_of(build)
    rest = tuple(file for file in build.files if is_versioned(file.path, version))
    kept = {version: build_shared}
    if served != version:
        kept[served] = stored(output, old.models, served) or current(output, old.models, served)
    now = version if (serve and version not in numbers) or served not in numbers else served
    written = [
        File(path=f"{path.split('/')[0]}/{number}/{SHARED}/{path.split('/', 1)[1]}", content=content)
        for number, shared in kept.items()
        for path, content in shared.items()
    ]
    front = [File(path=path, content=content) for path, content in serving(kept[now], (now,)).items()]
    entries = {**old.versions, version: build.entry.served}
    everything = tuple(
        sorted((*_linked(rest, output, version, served), *written, *front), key=lambda f: f.path)
    )
    previous = served if now != served else old.previous
    notes = build.notes
    if version != now or now != served:
        notes = (*notes, _note(build.name, version, now, output))
    return replace(build, files=everything, entry=arrange(entries, now, previous), notes=notes)


def _note(name: str, version: int, now: int, output: Path) -> str:
    if version == now:
        return f"version {now} of '{name}' is served now; 'trb rollback {name}{_argument(output)}' goes back"
    return f"version {now} of '{name}' stays the one that is served; '{promotion(name, version, output)}'"


def promotion(name: str, version: int, output: Path) -> str:
    """The command that serves a version."""
    return f"trb promote {shlex.quote(name)}{_argument(output)} --version {version}"


def _argument(output: Path) -> str:
    return "" if output == BuildOptions.output else f" {shlex.quote(str(output))}"


def _check(build: BuiltEndpoint, old: EndpointEntry, output: Path) -> None:
    """Refuse a version with another interface: all versions share one config.pbtxt during a rollout."""
    others = f"version {old.served.version}"
    if old.served.shared or build.models != old.models:
        raise _other(build.name, f"{others} is made of other models, or of models that endpoints share")
    new = {file.path: file.content for file in build.files if file.path.endswith(f"/{CONFIG}")}
    for model in old.models:
        before = read_config(output / model / CONFIG)
        after = ModelConfig(pbtxt.parse(new[f"{model}/{CONFIG}"].decode()))
        field = unlike(before, after)
        if field:
            raise _other(f"{build.name}: {model}", f"{others} has another {field}")


def _other(where: str, message: str) -> TrbError:
    return TrbError(
        Code.OUTPUT_FOREIGN,
        f"{message}, and all versions of a model share one config.pbtxt",
        where=where,
        remedy="build it under another --name, or with --force if the older versions need not be served",
    )


def unlike(first: ModelConfig, second: ModelConfig) -> str:
    """First field that gives two configurations different meanings for a version; empty if equal."""
    left, right = (_meaning(config) for config in (first, second))
    return next((field for field in sorted({*left, *right}) if left.get(field) != right.get(field)), "")


def _meaning(config: ModelConfig) -> dict[str, Any]:
    """The part of a config that determines a version's answers: no pool or queue sizes, no provenance."""
    meaning = {key: value for key, value in config.raw.items() if key not in (*_TUNING, "parameters")}
    for key, value in config.parameters.items():
        session_setting = config.backend == "onnxruntime" and not key.startswith("ragged")
        if not key.startswith(PREFIX) and not session_setting:
            meaning[f"parameter {key}"] = value
    if config.steps:
        meaning["ensemble_scheduling"] = [replace(step, model_version=-1) for step in config.steps]
    return meaning


def is_versioned(path: str, version: int) -> bool:
    """Whether a file is in the folder of this version."""
    return path.split("/")[1] == str(version)


def shared_of(build: BuiltEndpoint) -> dict[str, bytes]:
    """Files that a build writes outside its version folders, in the form for its version."""
    return {
        file.path: pinned(file.path, files.read(file.source) if file.source else file.content, build.version)
        for file in build.files
        if not is_versioned(file.path, build.version)
    }


def stored(root: Path, models: Iterable[str], version: int) -> dict[str, bytes]:
    """A version's own files from ``shared/``, by the path that they have when it is served."""
    contents = {}
    for model in models:
        folder = root / model / str(version) / SHARED
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                _check_inside(root, file)
                contents[f"{model}/{file.relative_to(folder).as_posix()}"] = files.read(file)
    return contents


def _check_inside(root: Path, file: Path) -> None:
    """Raise ``TrbError`` OUTPUT_FOREIGN for a link out of the repository: its target would be taken in."""
    if not file.resolve().is_relative_to(root.resolve()):
        raise TrbError(
            Code.OUTPUT_FOREIGN,
            f"a link to {file.resolve()}, outside of the repository; nothing was written",
            where=str(file),
            remedy="restore the file (git checkout), or put a copy in its place",
        )


def read_config(file: Path) -> ModelConfig:
    """A config.pbtxt. Raises ``TrbError`` REPOSITORY_UNREADABLE."""
    try:
        return ModelConfig(pbtxt.parse(files.read_text(file)))
    except (pbtxt.PbtxtError, OSError, UnicodeDecodeError) as error:
        raise unreadable(file, error) from None


def unreadable(file: Path, error: Exception) -> TrbError:
    """The error for a damaged config.pbtxt."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return TrbError(
        Code.REPOSITORY_UNREADABLE,
        f"cannot be read: {reason}",
        where=str(file),
        remedy="restore the file (git checkout), or build that version again",
    )


def current(root: Path, models: Iterable[str], version: int) -> dict[str, bytes]:
    """The files outside of version folders that ``trb`` wrote, in the form for ``version``."""
    contents = {}
    for path in (manifest.read(root) or Manifest()).files:
        model, *rest = path.split("/")
        if model in models and rest and not repository.VERSION.fullmatch(rest[0]) and (root / path).is_file():
            _check_inside(root, root / path)
            contents[path] = pinned(path, files.read(root / path), version)
    return contents


def serving(shared: Mapping[str, bytes], versions: Iterable[int]) -> dict[str, bytes]:
    """Shared files as the models' folders hold them while these versions are loaded."""
    numbers = tuple(versions)
    return {
        path: _serving(content, numbers) if path.endswith(f"/{CONFIG}") else content
        for path, content in shared.items()
    }


def _serving(config: bytes, versions: tuple[int, ...]) -> bytes:
    text = config.decode("utf-8", "surrogateescape")
    return pbtxt.serve_versions(text, versions).encode("utf-8", "surrogateescape")


def _linked(new: Iterable[File], output: Path, version: int, served: int) -> Iterable[File]:
    """Files, with a link in place of each that equals the file of the served version."""
    recorded = (manifest.read(output) or Manifest()).files
    for file in new:
        model, _, rest = file.path.split("/", 2)
        twin = f"{model}/{served}/{rest}"
        if version != served and twin in recorded and (output / twin).is_file():
            record = recorded[twin]
            same = record.bytes == file.size() and record.sha256 == file.sha256()
            if same and files.hash_file(output / twin) == record.sha256:
                yield File(path=file.path, source=output / twin)
                continue
        yield file


def arrange(versions: Mapping[int, VersionEntry], served: int, previous: int | None = None) -> EndpointEntry:
    """The endpoint's entry while ``served`` is served."""
    return EndpointEntry(
        served=_with_cases(versions[served], served=True),
        previous=previous if previous in versions and previous != served else None,
        others={
            number: _with_cases(entry, served=False)
            for number, entry in sorted(versions.items())
            if number != served
        },
    )


def _with_cases(entry: VersionEntry, *, served: bool) -> VersionEntry:
    """The entry with the path of the version's golden cases."""
    if not entry.cases:
        return entry
    model, *_, name = entry.cases.split("/")
    return replace(entry, cases=f"{model}/{name}" if served else f"{model}/{entry.version}/{SHARED}/{name}")
