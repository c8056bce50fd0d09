"""Any Triton model repository on disk, ours or hand-made, as plain values."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import is_folder, is_foreign, unreadable
from triton_repo_builder.repository import composition, pbtxt, provenance
from triton_repo_builder.repository.config import CONFIG, ModelConfig
from triton_repo_builder.repository.manifest import Manifest
from triton_repo_builder.repository.manifest import read as read_manifest

SHARED = "shared"
"""Subfolder of a version: its own copy of the files outside of version folders."""
VERSION = re.compile(r"0|[1-9][0-9]*")
_NO_UTF8 = re.compile("[\udc80-\udcff]")
PIPE = "a pipe, a socket or a device, not a file: whoever reads it, Triton too, may wait for ever"
NO_PIPE = "remove it, and restore the file that was there"
LARGEST_VERSION = 2**63 - 1
"""The server aborts on a version directory with a larger number."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """One model directory. ``config`` is empty without a config.pbtxt that parses."""

    name: str
    path: Path
    config: ModelConfig
    text: str | None
    """The text of config.pbtxt, None if there is no such file."""
    error: pbtxt.PbtxtError | None
    versions: tuple[int, ...]

    @property
    def backend(self) -> str:
        """``onnxruntime``, ``python``, ``ensemble`` …: from backend, else platform."""
        return self.config.runs_on

    @property
    def stated(self) -> bool:
        """Whether the folder is meant as a model: it has a configuration or a version."""
        return self.text is not None or bool(self.versions)

    @property
    def complete(self) -> bool:
        """Whether ``trb`` wrote the configuration, with all inputs and outputs."""
        return bool(self.config.inputs and self.config.outputs and provenance.written(self.config))

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of an ensemble's composing models."""
        return tuple(step.model_name for step in self.config.steps)

    @property
    def selected(self) -> tuple[int, ...]:
        """The versions that the version policy serves, ascending."""
        return self.config.select(self.versions)


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A folder of model directories, and the manifest if ``trb`` wrote one."""

    path: Path
    models: tuple[Model, ...]
    manifest: Manifest | None
    damage: str = ""
    """Fault of a manifest.json that cannot be read; only if read leniently."""
    pipes: tuple[Path, ...] = ()
    """Pipes, sockets and devices, and links to them; only if read leniently."""

    def model(self, name: str) -> Model | None:
        """The model of that name, if there is one."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, Model]:
        return {model.name: model for model in self.models}

    def with_texts(self, texts: Mapping[str, str]) -> Repository:
        """The repository with other texts of config.pbtxt, by their paths; nothing is written.

        A text may have the file's own line ends, and surrogates for bytes that are not UTF-8.
        """
        models = tuple(
            _with_text(model, texts[path]) if (path := str(model.path / CONFIG)) in texts else model
            for model in self.models
        )
        return replace(self, models=models)

    @property
    def endpoints(self) -> tuple[Model, ...]:
        """The models a client is meant to call: those that are not steps of an ensemble here."""
        names = composition.outermost((model.name for model in self.models), self.steps_of)
        return tuple(model for model in self.models if model.name in names)

    def steps_of(self, name: str) -> tuple[str, ...]:
        """The steps of the model of that name; empty if it is unknown, or not an ensemble."""
        model = self.model(name)
        return model.steps if model else ()

    def needing(self, name: str) -> tuple[str, ...]:
        """Ensembles that run a model as a step, directly or through another ensemble."""
        return composition.needing(name, (model.name for model in self.models), self.steps_of)


def read(path: Path, *, lenient: bool = False) -> Repository:
    """Read every direct sub-directory as a model, as Triton does; nothing is loaded or checked yet.

    With ``lenient`` a model that cannot be read has an error at line 0 and a pipe is kept, else this raises
    ``TrbError`` for them; and a config.pbtxt need not be UTF-8.
    """
    if not path.is_dir():
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            "no such model repository",
            where=str(path),
            remedy="name the folder that holds the model directories, or make one with 'trb build'",
        )
    try:
        entries = sorted(path.iterdir())
        folders = [entry for entry in entries if (is_folder(entry) if lenient else entry.is_dir())]
    except OSError as error:
        raise unreadable(path, error, code=Code.REPOSITORY_UNREADABLE) from None
    pipes = tuple(_pipes(path))
    if pipes and not lenient:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE, PIPE, where=str(pipes[0]), remedy=f"{NO_PIPE} (git checkout)"
        )
    models = tuple(_model(folder, lenient=lenient) for folder in folders)
    try:
        return Repository(path=path, models=models, manifest=read_manifest(path), pipes=pipes)
    except TrbError as error:
        if not lenient:
            raise
        return Repository(path=path, models=models, manifest=None, damage=error.message, pipes=pipes)


def _pipes(folder: Path) -> Iterator[Path]:
    """Pipes, sockets and devices below a folder, and links to them, in order.

    Files that are not part of a repository are left out: git may keep a socket in ``.git``.
    """
    try:
        with os.scandir(folder) as scanned:
            entries = sorted(scanned, key=lambda each: each.name)
    except OSError:
        return
    for entry in entries:
        if is_foreign(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _pipes(Path(entry.path))
            continue
        with suppress(OSError):  # a link that this user cannot follow
            kind = entry.stat().st_mode
            if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
                yield Path(entry.path)


def _model(folder: Path, *, lenient: bool) -> Model:
    file = folder / CONFIG
    text, config, error = None, ModelConfig(), None
    versions: tuple[int, ...] = ()
    try:
        versions = tuple(
            sorted(int(v.name) for v in folder.iterdir() if VERSION.fullmatch(v.name) and is_folder(v))
        )
        if file.is_file():
            text = _decode(files.read(file), lenient=lenient)
            config = ModelConfig(pbtxt.parse(text))
        elif file.exists() and not file.is_dir():
            error = pbtxt.PbtxtError(0, 0, PIPE)  # the check names its place, too
    except pbtxt.PbtxtError as problem:
        error = problem
    except UnicodeDecodeError as problem:
        error = pbtxt.PbtxtError(1, 1, f"not UTF-8 text: {problem.reason}")
    except OSError as problem:
        if not lenient:
            raise unreadable(folder, problem, code=Code.REPOSITORY_UNREADABLE) from None
        error = pbtxt.PbtxtError(0, 0, f"cannot be read: {problem.strerror}: {problem.filename or folder}")
    return Model(name=folder.name, path=folder, config=config, text=text, error=error, versions=versions)


def _with_text(model: Model, exact: str) -> Model:
    text = _plain(exact)
    try:
        return replace(model, text=text, config=ModelConfig(pbtxt.parse(text)), error=None)
    except pbtxt.PbtxtError as error:
        return replace(model, text=text, config=ModelConfig(), error=error)


def _decode(content: bytes, *, lenient: bool) -> str:
    """The text of a config.pbtxt; the server takes a byte that is not UTF-8 in a comment or a string.

    A text that will be written again must be UTF-8.
    """
    return _plain(content.decode("utf-8", "surrogateescape" if lenient else "strict"))


def _plain(exact: str) -> str:
    """A text whose lines and columns are the file's: one character for each byte that is not UTF-8."""
    return _NO_UTF8.sub("\ufffd", exact).replace("\r\n", "\n")
