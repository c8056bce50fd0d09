"""Directories: what is a model, its name, its backend, its versions and their files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from triton_repo_builder.check import backends
from triton_repo_builder.check.context import ModelContext, report
from triton_repo_builder.check.finding import Finding, Severity
from triton_repo_builder.files import is_foreign
from triton_repo_builder.repository import MANIFEST, VERSION, Model, Repository
from triton_repo_builder.repository.config import PLATFORMS
from triton_repo_builder.repository.model import LARGEST_VERSION

LFS = b"version https://git-lfs.github.com/spec/"


def is_model(model: Model) -> bool:
    """Whether a directory of the repository holds, or is meant to hold, a model."""
    if model.text is not None:
        return True
    return not model.name.startswith(".") and bool(model.versions) and bool(backends.backend_of(model))


def not_a_model(model: Model) -> Finding:
    """Triton takes every directory for a model, so one that is none fails to load."""
    message = f"Could not determine backend for model '{model.name}' with no backend in model configuration"
    remedy = "add a config.pbtxt with its backend, or move it out of the repository" if model.versions else ""
    return report("not-a-model", str(model.path), message, remedy=remedy)


def case_clashes(repository: Repository) -> Iterator[Finding]:
    """Names of one folder that a disk which ignores case would mix up: macOS, Windows, some volumes."""
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


def check(context: ModelContext) -> Iterator[Finding]:
    """Everything about a model's directory but the content of its files."""
    name = context.config.name
    if name and name != context.name:
        yield context.finding(
            "name-mismatch",
            f"unexpected directory name '{context.name}' for model '{name}', directory name must equal model "
            "name",
            "name",
        )
    yield from _backend(context)
    yield from _versions(context)
    yield from _files(context)
    yield from _pointers(context)


def _backend(context: ModelContext) -> Iterator[Finding]:
    backend, platform = context.config.backend, context.config.platform
    if platform == "ensemble" or (context.ensemble and not platform):
        return  # ensembles.py
    if not context.backend:
        remedy = backends.MISSPELT.get(platform, "")
        if platform or context.config.default_model_filename:
            message = f"unexpected platform type '{platform}' for {context.name}"
        else:
            message = (
                f"Invalid model name: Could not determine backend for model '{context.name}' with no "
                f"backend in model configuration. Expected model name of the form 'model.<backend_name>'."
            )
        remedy = f"write {remedy} in place of platform" if remedy else ""
        yield context.finding("platform-unknown", message, "platform", remedy=remedy)
    elif backend and platform and _family(backend) != PLATFORMS.get(platform):
        message = f"unexpected 'platform' and 'backend' pair, got:{platform}, {backend}"
        yield context.finding("platform-backend-pair", message, "platform")
    elif backend in backends.MISSPELT:
        message = (
            f"unable to find backend library for backend '{backend}', "
            f"try specifying runtime on the model configuration."
        )
        remedy = f"write {backends.MISSPELT[backend]}"
        yield context.finding("backend-unknown", message, "backend", remedy=remedy)
    elif context.backend not in backends.STOCK | backends.TOYS:
        message = f"backend '{context.backend}' is not in the stock image"
        yield context.finding("backend-custom", message, "backend")


def _family(backend: str) -> str | None:
    """The backend, if the server checks its platform."""
    return backend if backend in PLATFORMS.values() else None


def _versions(context: ModelContext) -> Iterator[Finding]:
    folders = sorted(entry for entry in context.model.path.iterdir() if entry.is_dir())
    for folder in folders:
        if folder.name.isdecimal() and int(folder.name) > LARGEST_VERSION:
            message = f"the server aborts on a numeric directory name above {LARGEST_VERSION}"
            yield report("version-overflow", str(folder), message)
        elif not VERSION.fullmatch(folder.name) and (number := re.match(r"\d+", folder.name)):
            yield from _misread(folder, int(number[0]))
        elif re.fullmatch(r"v\d+", folder.name):
            message = f"ignore version directory '{folder.name}' which fails to convert to integral number"
            yield report("version-ignored", str(folder), message)
    for version in context.config.version_policy.get("specific", {}).get("versions", []):
        if version not in context.model.versions:
            message = (
                f"version {version} is specified for model '{context.name}', but the version directory is "
                "not present"
            )
            yield context.finding("version-absent", message, "version_policy", "specific", "versions")
    if not context.selected:
        message = f"at least one version must be available under the version policy of model '{context.name}'"
        yield context.finding("version-missing", message, "version_policy", remedy=_remedy(context, folders))
    for version in context.selected:
        folder = context.model.path / str(version)
        if context.ensemble and not any(folder.rglob("*")):
            yield report(
                "version-empty", str(folder), "an empty directory, which git, S3 and OCI images drop"
            )


def _misread(folder: Path, number: int) -> Iterator[Finding]:
    """The server converts with C++'s stoll, which stops at the first character that is not a digit."""
    if folder.name.startswith("0"):
        message = (
            f"ignore version directory '{folder.name}' which contains leading zeros in its directory name"
        )
        yield report("version-ignored", str(folder), message)
    elif not (folder.parent / str(number)).is_dir():
        message = (
            f"the server takes '{folder.name}' for version {number}, then looks for its files in {number}/"
        )
        yield report("version-misread", str(folder), message)


def _remedy(context: ModelContext, folders: list[Path]) -> str:
    policy = context.config.version_policy
    if context.model.versions and "latest" in policy:
        return "write latest { num_versions: 1 }: without a number it means 0"
    if context.model.versions:
        return f"name a version that is there: {', '.join(map(str, context.model.versions))}"
    near = [folder.name for folder in folders if re.fullmatch(r"v?0*[1-9]\d*", folder.name)]
    if near:
        return f"rename {near[0]}/ to {near[0].lstrip('v0')}/"
    kind = "a placeholder file (1/.gitkeep)" if context.ensemble else "the model's files"
    return f"make a directory 1/ with {kind} in it"


def _files(context: ModelContext) -> Iterator[Finding]:
    for version in context.selected:
        file = context.file(version)
        if file is None or file.exists() or context.ensemble:
            continue
        if context.backend == "python":
            hangs = "; the load never ends" if "python_load_bounded" not in context.release.features else ""
            message = f"Python model file not found in '{file}'{hangs}"
        else:
            message = f"failed to stat file {file}"
        beside = (
            sorted(entry.name for entry in file.parent.glob(f"*{file.suffix}"))
            if file.parent.is_dir()
            else []
        )
        remedy = f'write default_model_filename: "{beside[0]}", or rename it to {file.name}' if beside else ""
        yield report("model-file-missing", str(file), message, remedy=remedy)
    for index, output in enumerate(context.messages("output")):
        label = str(output.get("label_filename", ""))
        path = context.model.path / label
        if label and not path.is_file():
            message = f"failed to open text file for read {path}: No such file or directory"
            yield context.finding("labels-missing", message, "output", index, "label_filename")
        elif (
            label
            and "label_path_restricted" in context.release.features
            and not _inside(path, context.model.path)
        ):
            message = f"label file path {path} is outside model directory"
            yield context.finding("labels-missing", message, "output", index, "label_filename")


def _inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _pointers(context: ModelContext) -> Iterator[Finding]:
    """Any file may be in LFS, a tokenizer as well as a model."""
    for file in sorted(context.model.path.rglob("*")):
        if file.is_file() and file.stat().st_size < 1024:
            with file.open("rb") as stream:
                if stream.read(len(LFS)) == LFS:
                    yield report("lfs-pointer", str(file), "this is a git-LFS pointer, not the file itself")
