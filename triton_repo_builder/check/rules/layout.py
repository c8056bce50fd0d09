"""Directories: models, their names, backends, versions and files."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from triton_repo_builder.base import files as file_system
from triton_repo_builder.base.files import is_folder
from triton_repo_builder.check import backends
from triton_repo_builder.check.context import ModelContext, c_string, readable, report
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.repository import Model
from triton_repo_builder.repository.config import PLATFORMS
from triton_repo_builder.repository.model import LARGEST_VERSION
from triton_repo_builder.repository.pbtxt_document import Key

NO_VERSIONS = frozenset({"warmup", "initial_state", "configs"})
"""Folders of a model that the server knows by name."""
_NUMBER = re.compile(r"\s*[-+]?\d+", re.ASCII)
LFS = b"version https://git-lfs.github.com/spec/"


def is_model(model: Model) -> bool:
    """Whether a directory of the repository holds (or is intended to hold) a model."""
    if model.text is not None:
        return True
    return not model.name.startswith(".") and bool(model.versions) and bool(backends.backend_of(model))


def not_a_model(model: Model) -> Finding:
    """Directories without a model: Triton takes each for a model and fails to load it."""
    message = f"Could not determine backend for model '{model.name}' with no backend in model configuration"
    remedy = "add a config.pbtxt with its backend, or move it out of the repository" if model.versions else ""
    return report("not-a-model", str(model.path), message, remedy=remedy)


def check(context: ModelContext) -> Iterator[Finding]:
    """Checks of a model's directory except the content of its files."""
    name = context.config.name
    if name and name != context.name:
        yield context.finding(
            "name-mismatch",
            f"unexpected directory name '{context.name}' for model '{name}', directory name must equal model "
            "name",
            "name",
        )
    yield from _backend(context)
    if not context.relocated:
        for part in (_versions, _files, _by_capability, _labels):
            yield from readable(context.model.path, functools.partial(part, context))
    yield from _pointers(context)


def files(context: ModelContext) -> Iterator[Finding]:
    """Checks of the directory that need no configuration."""
    for part in (_versions, _pointers):
        yield from readable(context.model.path, functools.partial(part, context))


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
    elif platform and _family(backend) and _family(backend) != PLATFORMS.get(platform):
        message = f"unexpected 'platform' and 'backend' pair, got:{platform}, {backend}"
        field = _wrong_field(context, PLATFORMS.get(platform, ""))
        remedy = f"drop {field}: the model's file is not of it" if field else ""
        yield context.finding("platform-backend-pair", message, field or "platform", remedy=remedy)
    elif context.image.backends and context.backend not in context.image.backends:
        message = f"backend '{context.backend}' is not among those of the image"
        yield context.finding("backend-unknown", message, "backend", remedy=_of_the_image(context))
    elif gone := backends.gone(context.backend, context.release.name):
        message = (
            f"unable to find backend library for backend '{context.backend}', try specifying runtime on the "
            f"model configuration: the image has none from {gone} on"
        )
        remedy = f"export the model to ONNX, or serve with a release before {gone}"
        yield context.finding("backend-unknown", message, "backend", remedy=remedy)
    elif backend in backends.MISSPELT or backends.meant(backend) or _is_path(backend):
        message = (
            f"unable to find backend library for backend '{backend}', "
            f"try specifying runtime on the model configuration."
        )
        name = re.split(r"[/\0]+", backend.strip("/.\0"))[-1]
        meant = f'write backend: "{backends.meant(backend) or name}"' if name else ""
        remedy = f"write {backends.MISSPELT[backend]}" if backend in backends.MISSPELT else meant
        yield context.finding("backend-unknown", message, "backend", remedy=remedy)
    elif context.backend not in backends.STOCK | backends.TOYS | context.image.backends:
        message = f"backend '{context.backend}' is not in the stock image"
        near = difflib.get_close_matches(context.backend, sorted(backends.STOCK), 1, 0.8)
        yield context.finding(
            "backend-custom", message, "backend", remedy=f"did you mean {near[0]}?" if near else ""
        )
    yield from _runtime(context)


def _wrong_field(context: ModelContext, of_platform: str) -> str:
    """The field, ``platform`` or ``backend``, that does not fit the versions' files; empty if undecided."""
    suffixes = {Path(name).suffix: backend for name, backend in backends.FILES.items()}
    folders = [context.model.path / str(version) for version in context.selected]
    names = [entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir()]
    named = context.config.default_model_filename
    fitting = {suffixes.get(Path(name).suffix, "") for name in ([named] if named else names)}
    if (context.config.backend in fitting) == (of_platform in fitting):
        return ""
    return "platform" if context.config.backend in fitting else "backend"


def _is_path(backend: str) -> bool:
    return bool({"/", "\0"} & {*backend}) or backend in (".", "..")


def _of_the_image(context: ModelContext) -> str:
    return f"it has: {', '.join(sorted(context.image.backends))}"


def _runtime(context: ModelContext) -> Iterator[Finding]:
    """A library's name in place of the backend's own; the version's and the model's folder may hold it."""
    runtime, backend = str(context.config.raw.get("runtime", "")), context.backend
    usual = f"libtriton_{backend}.so"
    if (
        not runtime
        or not backend
        or c_string(runtime).rsplit("/", 1)[-1] == usual
        or (runtime == "model.py" and backend != "python")
    ):
        return
    folders = [context.model.path, *(context.model.path / str(version) for version in context.selected)]
    if (
        runtime != "model.py"
        and "/" not in runtime
        and any((folder / runtime).is_file() for folder in folders)
    ):
        return
    if backend not in backends.STOCK:
        return  # Nobody knows what the folder of a custom backend holds.
    kind = "Python backend based backend" if runtime == "model.py" else "backend"
    message = f"unable to find {kind} library '{runtime}' for model '{context.name}'"
    yield context.finding("runtime-unknown", message, "runtime", remedy=f'drop runtime, or write "{usual}"')


def _family(backend: str) -> str | None:
    """The backend, if the server checks its platform."""
    return backend if backend in PLATFORMS.values() else None


def _versions(context: ModelContext) -> Iterator[Finding]:
    folders = sorted(entry for entry in context.model.path.iterdir() if is_folder(entry))
    numbers: dict[int, str] = {}
    for folder in folders:
        if folder.name in NO_VERSIONS:
            continue
        number = _NUMBER.match(folder.name)
        if number and not -LARGEST_VERSION <= int(number[0]) <= LARGEST_VERSION:
            message = f"the server aborts on a numeric directory name above {LARGEST_VERSION}"
            yield report("version-overflow", str(folder), message)
        elif len(folder.name) > 1 and folder.name.startswith("0"):
            message = (
                f"ignore version directory '{folder.name}' which contains leading zeros in its directory name"
            )
            if number:
                yield report("version-ignored", str(folder), message)
        elif number:
            numbers.setdefault(int(number[0]), folder.name)
        elif re.fullmatch(r"v\d+", folder.name):
            message = f"ignore version directory '{folder.name}' which fails to convert to integral number"
            yield report("version-ignored", str(folder), message)
    selected = context.config.select(numbers)
    for number_ in selected:
        yield from _misread(context, number_, numbers[number_])
    for version in context.config.version_policy.get("specific", {}).get("versions", []):
        if version not in numbers:
            message = (
                f"version {version} is specified for model '{context.name}', but the version directory is "
                "not present"
            )
            yield context.finding("version-absent", message, "version_policy", "specific", "versions")
    if not selected:
        message = f"at least one version must be available under the version policy of model '{context.name}'"
        yield context.finding("version-missing", message, "version_policy", remedy=_remedy(context, folders))
    for version in context.selected:
        folder = context.model.path / str(version)
        if context.ensemble and not any(folder.rglob("*")):
            yield report(
                "version-empty", str(folder), "an empty directory, which git, S3 and OCI images drop"
            )


def _misread(context: ModelContext, number: int, name: str) -> Iterator[Finding]:
    """Names that C++'s stoll reads differently: it skips blanks and a plus, and stops at the first non-digit.

    The core counts versions with a sign, backends without one.
    """
    if number < 0 and not context.ensemble:
        message = f"the backend takes version {number} for {2**64 + number}, and finds no files there"
        remedy = "name it with a number of 0 or more"
        yield report("version-misread", str(context.model.path / name), message, remedy=remedy)
    elif not (context.model.path / str(number)).is_dir():
        message = f"the server takes '{name}' for version {number}, then looks for its files in {number}/"
        yield report("version-misread", str(context.model.path / name), message)


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
        if context.backend == "python" and (message := _python_name(context)):
            yield context.finding("model-filename", message, "default_model_filename")
            return
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


def _by_capability(context: ModelContext) -> Iterator[Finding]:
    """Files for some GPUs: a server without such a GPU does not read them."""
    for key, name in backends.by_capability(context.model, context.backend).items():
        place = ("cc_model_filenames", Key(key))
        if not re.fullmatch(r"\d+\.\d+", key):
            message = f"cc_model_filenames: '{key}' is not a compute capability, so no GPU takes '{name}'"
            remedy = 'write it with a point: key: "7.5"'
            yield context.finding("model-filename", message, *place, remedy=remedy, severity="warning")
        for version in context.selected:
            file = context.join(str(version), name)
            if not file.exists():
                message = f"failed to stat file {file}, on a GPU of compute capability {key}"
                yield context.finding("model-file-missing", message, *place, severity="warning")


def _python_name(context: ModelContext) -> str:
    """Message if the backend's stub cannot import the file, as ``<version>.<name>``; empty if it can."""
    name = context.config.default_model_filename
    base = name.rsplit("/", 1)[-1]
    if name and not name.endswith(".py"):
        return f"Model name must end with '.py'. Model name is \"{base}\"."
    if name.startswith("/") or ".." in name.split("/"):
        return f"default_model_filename '{name}' leads out of the version's folder: the model does not load"
    if "." in name.split("/"):
        return f"ModuleNotFoundError: No module named '.': default_model_filename is '{name}'"
    if "." in base.removesuffix(".py"):
        module = base.removesuffix(".py").rsplit(".", 1)[0]
        return f"ModuleNotFoundError: No module named '{context.selected[-1]}.{module}'"
    return ""


def _labels(context: ModelContext) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, output in enumerate(context.messages("output")):
        name = str(output.get("name", ""))
        label = str(output.get("label_filename", ""))
        path = context.join(label)
        if label and name in seen:
            message = f"multiple label files for '{name}'"
            yield context.finding(
                "labels-missing", message, "output", index, "label_filename", remedy="keep one"
            )
        seen |= {name} if label else set()
        if label and path.is_dir():
            message = f"{path} is a folder: the server dies when it reads it as a file"
            yield context.finding("labels-missing", message, "output", index, "label_filename")
        elif label and (not path.exists() or label.endswith("/")):
            reason = "Not a directory" if path.is_file() else "No such file or directory"
            message = f"failed to open text file for read {path}: {reason}"
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
            with file_system.opened(file) as stream:
                if stream.read(len(LFS)) == LFS:
                    yield report("lfs-pointer", str(file), "this is a git-LFS pointer, not the file itself")
