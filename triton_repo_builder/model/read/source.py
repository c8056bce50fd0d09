"""The user's model: an ONNX file or an exported folder, and the files beside it."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from triton_repo_builder import repository
from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import Checksum, File
from triton_repo_builder.base.text import some
from triton_repo_builder.model.read import (
    foreign,
    hub_name,
    image_processor,
    label_file,
    timm_config,
    tokenizer,
    tokenizer_template,
)
from triton_repo_builder.model.read.options import BuildOptions, usage
from triton_repo_builder.model.read.signature import ModelSignature
from triton_repo_builder.model.read.skeleton import Skeleton
from triton_repo_builder.model.read.tokenizer import TokenizerSpec

PREFERRED = ("model.onnx", "onnx/model.onnx")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
LONGEST_NAME = 128
COMMIT = re.compile(r"[0-9a-f]{40}")
CACHED = "models--"
"""Beginning of the name of a model's folder in Hugging Face's cache."""
COMPARED = (
    *("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "dim", "n_layers"),
    *("d_model", "num_layers", "n_embd", "n_layer"),
)
"""Fields of config.json that an export and its original have in common."""
LISTED = 6
"""Most files that a message names."""
WHILE = 32 << 20
"""Size of a file from which its checksum takes a while."""


@dataclass(frozen=True, kw_only=True)
class SourceOverrides:
    """Files and inputs that the user names; for None and empty, the files beside the model count."""

    file: str | None = None
    """The ONNX file in the model's folder, as a relative path."""
    original: Path | None = None
    """The folder of the model that was exported, for files that the export has not."""
    tokenizer: Path | None = None
    preprocessor: Path | None = None
    labels: Path | None = None
    """The file with the names of a classifier's labels."""
    inputs: tuple[tuple[str, str], ...] = ()
    """(usual name, graph's name) of inputs."""
    constants: tuple[tuple[str, str], ...] = ()
    """(graph's name, value) of inputs that no request gives."""

    @staticmethod
    def of(options: BuildOptions) -> SourceOverrides:
        """The files and inputs named by the options of a build."""
        return SourceOverrides(
            file=options.file,
            original=options.from_model,
            tokenizer=options.tokenizer,
            preprocessor=options.preprocessor,
            labels=options.labels,
            inputs=options.input,
            constants=options.constant,
        )


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
    labels: Path | None = None
    """The file that names the labels, if given; ``config`` has them as its ``id2label``."""
    original: Path | None = None
    """The folder of the model that was exported, if given."""
    others: tuple[str, ...] = ()
    """Other ONNX files in the folder that the user gave."""
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
            spec = tokenizer.read(self.tokenizer, self.sentence)
            typed = spec.gives_types or self.signature.input("token_type_ids") is None
            spec = spec if typed else tokenizer_template.without_types(spec)
            static = self.skeleton.flat or tokenizer.is_static(
                self.folder, *tokenizer.places(self.path.parent)
            )
            self._tokenizers[self.tokenizer] = tokenizer_template.plain(spec) if static else spec
        return self._tokenizers[self.tokenizer]

    @property
    def weights(self) -> tuple[Path, ...]:
        """The model file and the files of its external data."""
        return (self.path, *(self.path.parent / file.location for file in self.signature.external))

    def file(self, path: Path, name: str = "") -> File:
        """A copy of one of the user's files, called ``name`` in the repository."""
        return File(path=name or path.name, source=path, checksum=self.checksums.get(path))

    def summed(self) -> Source:
        """A source whose large weights are being summed; the checksums start in the background."""
        large = [path for path in self.weights if path.stat().st_size > WHILE]
        return replace(self, checksums={path: Checksum(path) for path in large})

    @property
    def folder(self) -> Path:
        """The folder of modules.json and its like: the original's, else the tokenizer's, else the model's."""
        beside = self.tokenizer.parent if self.tokenizer else self.path.parent
        return self.original or beside

    def settings(self, name: str) -> Mapping[str, Any]:
        """A JSON file of ``folder``, else of the model's own; empty without. Raises ``TrbError``."""
        return tokenizer.settings(self.folder, name) or tokenizer.settings(self.path.parent, name)

    @property
    def sentence(self) -> tuple[Path, Mapping[str, Any]]:
        """(file, content) of the model's or the tokenizer's sentence_bert_config.json; empty without one."""
        beside = (self.tokenizer.parent,) if self.tokenizer else ()
        return tokenizer.sentence_settings(self.folder, *beside, self.path.parent)

    @property
    def notes(self) -> tuple[str, ...]:
        """Choices made among several readings."""
        several = f"of several ONNX files {self.path.name} is taken (--file takes another: "
        listed = ", ".join(self.others)
        chosen = (f"{several}{listed})",) if self.others else ()
        named = (
            f"input '{name}' is taken for {usual} (--input {shlex.quote(f'{usual}={name}')})"
            for name, usual in sorted(self.skeleton.renamed.items())
        )
        listed = " and ".join(f"'{name}'" for name in self.skeleton.flat or ())
        plain = f"{listed} take the tokens of all texts end to end: no special tokens are put around a text"
        return (*chosen, *named, *((plain,) if listed else ()))


def describe(graph: Skeleton, signature: ModelSignature, model: Path, overrides: SourceOverrides) -> Source:
    """The model with the tokenizer, preprocessor and config.json that belong to it. Raises ``TrbError``."""
    path, original = graph.path, overrides.original or _hidden(model, graph.path)
    if overrides.tokenizer:
        file: Path | None = tokenizer.locate(overrides.tokenizer)
    else:
        places = (original, path.parent) if overrides.original else (path.parent, original)
        file = _tokenizer(*filter(None, places))
    folder = file.parent if file and overrides.tokenizer else original or path.parent
    config = tokenizer.settings(path.parent, "config.json") or tokenizer.settings(folder, "config.json")
    _check_config(path.parent / "config.json", config)
    config = timm_config.described(config)
    if overrides.labels:
        config = {**config, "id2label": label_file.read(overrides.labels, signature)}
    if original and overrides.original:
        _check_original(original, config)
        _check_tokenizer(original, path.parent, overrides)
    return Source(
        skeleton=graph,
        signature=signature,
        config=config,
        tokenizer=file,
        preprocessor=image_processor.find(path, overrides.preprocessor, original),
        labels=overrides.labels,
        original=original,
        others=() if overrides.file else _others(model, path),
    )


def _hidden(model: Path, path: Path) -> Path | None:
    """The folder that the user named, if the ONNX file in it is in a folder with its own config.json.

    Such a folder is a model by itself (``tokenizer.places``). optimum writes ``onnx/`` so into the folder of
    the model that it exported, whose modules.json and tokenizer count as well.
    """
    if not model.is_dir() or model.resolve() in (place.resolve() for place in tokenizer.places(path.parent)):
        return None
    at_top, beside = (_describes(folder) for folder in (model, path.parent))
    return model if at_top and (containment.within(model, "modules.json") or not beside) else None


def _describes(folder: Path) -> bool:
    """Whether a tokenizer or a preprocessor is in the folder."""
    processors = (containment.within(folder, name) for name in image_processor.FILES)
    return bool(tokenizer.find(folder)) or any(processors)


def _tokenizer(*folders: Path) -> Path | None:
    """The first tokenizer.json in these folders, else the first vocabulary, which has to be converted."""
    tokenizers = [file for folder in folders if (file := tokenizer.find(folder))]
    ready = [file for file in tokenizers if file.name == tokenizer.FILE]
    return next(iter((*ready, *tokenizers)), None)


def _check_original(folder: Path, config: Mapping[str, Any]) -> None:
    """``TrbError`` if the folder is not the folder of the exported model."""
    signs = ("config.json", "router_config.json")  # a Router of sentence-transformers has models below it
    if not tokenizer.is_static(folder) and not any(
        files.is_file(place / name) for place in tokenizer.places(folder) for name in signs
    ):
        raise TrbError(
            Code.NOT_FOUND,
            "no config.json: this is not the folder of a model",
            where=str(folder),
            remedy="give --from-model the folder that the model was exported from",
        )
    settings = tokenizer.settings(folder, "config.json")
    for name in COMPARED:
        if name in settings and name in config and settings[name] != config[name]:
            raise TrbError(
                Code.TASK_UNCLEAR,
                f"this is another model: its {name} is {settings[name]!r:.40}, the exported one's is "
                f"{config[name]!r:.40}",
                where=str(folder / "config.json"),
                remedy="give --from-model the folder that the model was exported from",
            )


def _check_tokenizer(original: Path, exported: Path, overrides: SourceOverrides) -> None:
    """``TrbError`` if the original's tokenizer gives other ids than the export's own."""
    theirs, ours = tokenizer.find(original), tokenizer.find(exported)
    if overrides.tokenizer or theirs is None or ours is None or {theirs.name, ours.name} != {tokenizer.FILE}:
        return
    if files.read(theirs) != files.read(ours) and _vocabulary(theirs) != _vocabulary(ours):
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"this is another model: its tokenizer gives tokens other ids than {ours}",
            where=str(theirs),
            remedy="give --from-model the folder that the model was exported from, or name a --tokenizer",
        )


def _vocabulary(file: Path) -> Mapping[str, int]:
    vocabulary: Mapping[str, int] = tokenizer.read(file).library.get_vocab(with_added_tokens=True)
    return vocabulary


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


def model_file(path: Path, name: str | None = None) -> Path:
    """The ONNX file at ``path`` or in that folder; ``TrbError`` if there is none or more than one.

    ``name``: which one in the folder.
    """
    try:
        exists = path.exists()
    except OSError:  # a name that is too long, a folder that may not be entered
        exists = False
    if not exists:
        raise TrbError(
            Code.NOT_FOUND,
            "no such file or folder",
            where=str(path),
            remedy=f"check the path{hub_name.hint(path)}",
        )
    if not path.is_dir():
        if name is not None:
            raise usage("file", "goes with a folder, and --model names a file", "leave it out")
        return _named(path)
    if name is not None:
        return _named(_inside(path, name))
    for preferred in PREFERRED:
        if file := containment.within(path, preferred):
            return _named(file)
    candidates = sorted(path.glob("*.onnx")) or sorted(path.glob("onnx/*.onnx"))
    if not candidates:
        raise foreign.nothing(path)
    foreign.refuse_encoder_decoder(path, candidates)
    if len(candidates) > 1:
        raise TrbError(
            Code.NOT_FOUND,
            f"several ONNX files: {_listed(candidates, path)}",
            where=str(path),
            remedy=f"name one, e.g. --file {shlex.quote(str(_likely(candidates).relative_to(path)))}",
        )
    return _named(containment.within(path, str(candidates[0].relative_to(path))) or candidates[0])


def _inside(folder: Path, name: str) -> Path:
    """The file of that name in the folder. Raises ``TrbError`` NOT_FOUND."""
    file = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise usage(
            "file", f"'{name}' is not in {folder}", "name a file in that folder, or give it to --model"
        )
    if containment.within(folder, name):
        return file
    candidates = _every(folder)
    raise TrbError(
        Code.NOT_FOUND,
        f"no such file: {name}",
        where=str(folder),
        remedy=f"its ONNX files are {_listed(candidates, folder)}" if candidates else "it has no ONNX file",
    )


def _every(folder: Path) -> list[Path]:
    return [*sorted(folder.glob("*.onnx")), *sorted(folder.glob("onnx/*.onnx"))]


def _listed(candidates: Sequence[Path], folder: Path) -> str:
    return some([file.relative_to(folder) for file in candidates], LISTED)


def _others(model: Path, taken: Path) -> tuple[str, ...]:
    """The other ONNX files in the folder that the user named."""
    if not model.is_dir():
        return ()
    return tuple(str(file.relative_to(model)) for file in _every(model) if file != taken)[:LISTED]


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
    """The default name: the file's, or its folder's if the file is called ``model.onnx``, as exporters do."""
    # The folder is resolved, the file is not: in a Hugging Face cache it is a link to a checksum.
    stem, folder = path.stem, path.parent.resolve()
    if stem == "model":
        place = without_commits((folder.parent if folder.name == "onnx" else folder).parts)
        if place[-1].isdecimal() and len(place) > 2:  # a version: NAME/1/model.onnx
            place = place[:-1]
        stem = place[-1].rsplit("--", 1)[-1] if place[-1].startswith(CACHED) else place[-1]
    return clean_name(stem)


def without_commits(parts: Sequence[str]) -> Sequence[str]:
    """The parts of a path without the folders of commits, as Hugging Face's cache has them:
    ``models--ORGANISATION--NAME/snapshots/COMMIT``."""
    kept: list[str] = []
    for part in parts:
        if not COMMIT.fullmatch(part):
            kept.append(part)
        elif kept and kept[-1] == "snapshots":
            kept.pop()
    return kept
