"""What the user gives: an ONNX file or an exported folder, and the files beside the model."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from triton_repo_builder import repository
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.files import Checksum, File
from triton_repo_builder.read import image_processor, tokenizer
from triton_repo_builder.read.signature import ModelSignature
from triton_repo_builder.read.skeleton import Skeleton
from triton_repo_builder.read.tokenizer import TokenizerSpec

PREFERRED = ("model.onnx", "onnx/model.onnx")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
LONGEST_NAME = 128
WHILE = 32 << 20
"""Size of a file from which its checksum takes a while."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The model file, its signature, and the folder that describes it."""

    skeleton: Skeleton = field(repr=False)
    """The graph, read once."""
    signature: ModelSignature
    config: Mapping[str, Any]
    """config.json of the Hugging Face export, or empty."""
    tokenizer: Path | None
    """The tokenizer.json found or given."""
    preprocessor: Path | None = None
    """The preprocessor_config.json found or given: how images are made ready."""
    checksums: Mapping[Path, Checksum] = field(default_factory=dict, compare=False)
    """Checksums of large files, being computed."""
    _tokenizers: dict[Path, TokenizerSpec] = field(default_factory=dict, compare=False, repr=False)

    @property
    def path(self) -> Path:
        """The model file."""
        return self.skeleton.path

    @property
    def tokenizer_spec(self) -> TokenizerSpec:
        """The tokenizer, read once. Raises ``TrbError``."""
        assert self.tokenizer is not None
        if self.tokenizer not in self._tokenizers:
            self._tokenizers[self.tokenizer] = tokenizer.read(self.tokenizer)
        return self._tokenizers[self.tokenizer]

    @property
    def weights(self) -> tuple[Path, ...]:
        """The model file, and those of its external data."""
        return (self.path, *(self.path.parent / file.location for file in self.signature.external))

    def file(self, path: Path, name: str = "") -> File:
        """A copy of one of the user's files, called ``name`` in the repository."""
        return File(path=name or path.name, source=path, checksum=self.checksums.get(path))

    def summed(self) -> Source:
        """The same; starts the checksums of large weights in the background."""
        large = [path for path in self.weights if path.stat().st_size > WHILE]
        return replace(self, checksums={path: Checksum(path) for path in large})

    @property
    def folder(self) -> Path:
        """The folder of modules.json and its like: the tokenizer's, else the model's."""
        return self.tokenizer.parent if self.tokenizer else self.path.parent


def describe(
    graph: Skeleton,
    signature: ModelSignature,
    given_tokenizer: Path | None = None,
    given_preprocessor: Path | None = None,
) -> Source:
    """The model with the tokenizer, preprocessor and config.json that belong to it. Raises ``TrbError``."""
    path = graph.path
    file = tokenizer.locate(given_tokenizer) if given_tokenizer else tokenizer.find(path.parent)
    folder = file.parent if file and given_tokenizer else path.parent
    config = tokenizer.settings(path.parent, "config.json") or tokenizer.settings(folder, "config.json")
    _check_config(path.parent / "config.json", config)
    images = image_processor.find(path, given_preprocessor)
    return Source(skeleton=graph, signature=signature, config=config, tokenizer=file, preprocessor=images)


def _check_config(file: Path, config: Mapping[str, Any]) -> None:
    """``TrbError`` TASK_UNCLEAR if a field that decides the task has not the type that transformers uses."""
    for name, kind, shown in (
        ("architectures", list, "a list of names"),
        ("id2label", dict, "an object of numbers and names"),
        ("label2id", dict, "an object of names and numbers"),
        ("model_type", str, "a name"),
    ):
        if config.get(name) is not None and not isinstance(config[name], kind):
            raise TrbError(
                Code.TASK_UNCLEAR,
                f"'{name}' is {config[name]!r:.60}, not {shown}",
                where=str(file),
                remedy="get the original file again from the model's source",
            )


def model_file(path: Path) -> Path:
    """The ONNX file at ``path`` or in that folder; ``TrbError`` if there is none or more than one."""
    try:
        exists = path.exists()
    except OSError:  # a name that is too long, a folder that may not be entered
        exists = False
    if not exists:
        raise TrbError(
            Code.NOT_FOUND,
            "no such file or folder",
            where=str(path),
            remedy="check the path",
        )
    if not path.is_dir():
        return _named(path)
    for name in PREFERRED:
        if (path / name).is_file():
            return _named(path / name)
    files = sorted(path.glob("*.onnx")) or sorted(path.glob("onnx/*.onnx"))
    if not files:
        raise TrbError(
            Code.NOT_FOUND,
            "no .onnx file in this folder",
            where=str(path),
            remedy="export the model first, e.g. optimum-cli export onnx --model NAME FOLDER",
        )
    if len(files) > 1:
        names = ", ".join(str(file.relative_to(path)) for file in files)
        raise TrbError(
            Code.NOT_FOUND,
            f"several ONNX files: {names}",
            where=str(path),
            remedy=f"name one, e.g. --model {_likely(files)}",
        )
    return _named(files[0])


def _named(file: Path) -> Path:
    """The file, if its path is text: a graph names the files of its weights, ONNX Runtime opens no other."""
    try:
        str(file.resolve()).encode()
    except UnicodeEncodeError:
        raise TrbError(
            Code.BAD_NAME,
            "this path is not UTF-8",
            where=str(file),
            remedy="rename the file or the folder",
        ) from None
    return file


def _likely(files: Sequence[Path]) -> Path:
    """The file to suggest: of an encoder-decoder model the encoder."""
    return next((file for file in files if file.stem == "encoder_model"), files[0])


def check_name(name: str) -> str:
    """The name, if Triton, a URL and a directory can all carry it; ``TrbError`` BAD_NAME else."""
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME or name == repository.MANIFEST:
        raise TrbError(
            Code.BAD_NAME,
            f"'{name}' cannot be the name of a Triton model",
            where="--name",
            remedy=f"use letters, digits, '_', '-' and '.', at most {LONGEST_NAME} characters, "
            f"e.g. --name {clean_name(name).replace(repository.MANIFEST, 'model')}",
        )
    return name


def clean_name(text: str) -> str:
    """A usable name made of any text: é becomes e, a letter that has no such equal its number (``u6a21``)."""
    plain = "".join(
        f"u{ord(char):x}" if char.isalnum() and not char.isascii() else char
        for char in unicodedata.normalize("NFKD", text)
        if not unicodedata.combining(char)
    )
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", plain).strip("_.-")[:LONGEST_NAME] or "model"


def default_name(path: Path) -> str:
    """From the file, or from its folder if the file is called ``model.onnx``, as exporters do."""
    # The folder is resolved, the file is not: in a Hugging Face cache it is a link to a checksum.
    stem, folder = path.stem, path.parent.resolve()
    if stem == "model":
        stem = folder.parent.name if folder.name == "onnx" else folder.name
    return clean_name(stem)
