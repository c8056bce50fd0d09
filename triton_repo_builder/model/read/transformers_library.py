"""The only importer of transformers, which takes seconds to import.

It can run the Python files of a model (``auto_map``, ``trust_remote_code``), and asks on the terminal whether
it shall. Here it never does either: a model's folder is data.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import first_line

SUFFIXES = frozenset({".json", ".txt", ".model", ".codes", ".spm", ".vocab", ".tiktoken", ".tokenizer"})
"""Ends of files that tokenizers and processors are made of; no weights, no code, no templates."""
VOCABULARIES = frozenset({"tokenizer.json", "vocab.json", "merges.json", "source.json", "target.json"})
"""JSON documents whose keys are tokens."""
NAMES = re.compile(
    r".*_files?|vocab|merges|tokenizer_object|gguf_file|_?name_or_path|base_model_name_or_path|init_inputs"
)
"""Keys of the other documents by which transformers opens files; init_inputs are arguments without names."""
TOKENIZER = re.compile(r"\w*(Tokenizer|TokenizerFast|Backend)")
LARGEST = 128 << 20
"""Bytes of a vocabulary."""
COUNTS = ("extra_ids", "num_madeup_words", "offset")
"""Settings of tokenizers that are numbers of tokens to make."""
MOST = 10_000
"""The largest of them; T5 has 100."""
STANDARD_ERROR = 2
COPY = re.compile(r"\S*/trb-model-\w+/model")
LACKS = re.compile(r"requires (?:the )?(\w+)")
LIBRARIES = {
    "torchvision": "torch torchvision",
    "pytorch": "torch torchvision",
    "pil": "pillow",
    "scipy": "scipy",
}
"""Packages on PyPI, by the library's name in the messages of transformers' image processors."""


def load(module: str = "") -> Any:
    """``transformers``, or one of its modules, without its advice on missing frameworks."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    os.environ["TRUST_REMOTE_CODE"] = "False"  # the older releases unpickle vocabularies with it
    os.environ["HF_HUB_OFFLINE"] = "1"
    remote = importlib.import_module("transformers.dynamic_module_utils")
    remote.TIME_OUT_REMOTE_CODE = 0  # type: ignore[attr-defined]  # seconds for the question: none is asked
    remote.get_class_in_module = _refuse  # type: ignore[attr-defined]  # the one function that imports such a file
    return importlib.import_module(f"transformers.{module}" if module else "transformers")


def _refuse(*args: object, **kwargs: object) -> NoReturn:
    raise ValueError("the model's own Python code is not run")


def version() -> str:
    """Version of the installed transformers."""
    return metadata.version("transformers")


def from_pretrained(kind: str, path: Path, **settings: Any) -> Any:
    """``KIND.from_pretrained`` of a model's folder, or of one JSON file, on a private copy of its files.

    Raises ``TrbError`` for a link that leads out and a file that is too large, and transformers' own errors.
    """
    folder = path if path.is_dir() else path.parent
    with tempfile.TemporaryDirectory(prefix="trb-model-") as scratch, _without_input(), panics():
        copy = Path(scratch) / "model"
        _copy(folder, copy)
        return getattr(load(), kind).from_pretrained(
            str(copy if path.is_dir() else copy / path.name),
            local_files_only=True,
            trust_remote_code=False,
            **settings,
        )


def reason(error: Exception, folder: Path) -> str:
    """Why transformers cannot read a model's folder, in its words; it names the private copy."""
    return first_line(COPY.sub(lambda copied: str(folder), str(error)) or type(error).__name__)


def lacking(error: Exception) -> str:
    """The packages that pip installs for a library that an error of transformers asks for; empty if none."""
    names = LACKS.findall(str(error).lower())
    return next((LIBRARIES[name] for name in names if name in LIBRARIES), "")


def _copy(folder: Path, target: Path) -> None:
    """Copy what transformers may read. A JSON document can name files of anywhere, so no name stays in it."""
    target.mkdir()
    for file in sorted(folder.iterdir()):
        if file.suffix not in SUFFIXES or (file.is_dir() and not file.is_symlink()):
            continue
        source = containment.within(folder, file.name)
        if source is None:
            continue
        document = file.suffix == ".json" and file.name not in VOCABULARIES
        try:
            content = files.read(source, files.LARGEST_DOCUMENT if document else LARGEST)
        except OSError as error:
            raise files.unreadable(file, error) from None
        files.create(target / file.name, _without_names(content, file) if document else content)


def _without_names(content: bytes, file: Path) -> bytes:
    """A JSON document without the keys that name files; as it is if it is not an object."""
    try:
        document = files.load_json(content, halves=True)
    except ValueError as error:  # no key can be removed from an unreadable file
        raise _invalid(file, f"is not readable JSON: {error}") from None
    _check_counts(document, file)
    if not isinstance(document, dict):
        return content
    stated = document.get("tokenizer_class")
    if isinstance(stated, str) and not TOKENIZER.fullmatch(stated):
        raise _invalid(file, f"its tokenizer_class is '{stated[:60]}', which is not the name of a tokenizer")
    return json.dumps({key: value for key, value in document.items() if not NAMES.fullmatch(key)}).encode()


def _check_counts(document: Any, file: Path) -> None:
    """``TrbError`` if a document asks, at any level, for more tokens than memory may hold."""
    inner = document.values() if isinstance(document, dict) else document
    for value in inner if isinstance(document, (dict, list)) else ():
        _check_counts(value, file)
    for name in COUNTS if isinstance(document, dict) else ():
        number = document.get(name)
        if isinstance(number, (int, float)) and number > MOST:
            raise _invalid(file, f"its {name} is {number:,}: at most {MOST:,} tokens can be made so")


def _invalid(file: Path, message: str) -> TrbError:
    return TrbError(
        Code.TOKENIZER_INVALID,
        message,
        where=str(file),
        remedy="get the original file again from the model's source",
    )


@contextmanager
def panics() -> Iterator[None]:
    """A panic of the Rust library ``tokenizers``, which is no ``Exception``, raised as ``ValueError``.

    The library's own print of it, with a stack trace, is left out: standard error is held back meanwhile, of
    the main thread alone, as it belongs to the whole process.
    """
    held = _hold_standard_error() if threading.current_thread() is threading.main_thread() else None
    panicked = False
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            panicked = True
            raise ValueError(str(error)) from None
        raise
    finally:
        if held:
            _release(*held, drop=panicked)


def _hold_standard_error() -> tuple[int, int] | None:
    """The descriptor that it had, and the memory that it has now; None if the process has none."""
    try:
        real, memory = os.dup(STANDARD_ERROR), os.memfd_create("stderr")
    except OSError:
        return None
    os.dup2(memory, STANDARD_ERROR)
    return real, memory


def _release(real: int, memory: int, *, drop: bool) -> None:
    os.dup2(real, STANDARD_ERROR)
    os.close(real)
    with os.fdopen(memory, "rb") as held:
        held.seek(0)
        if not drop:
            os.write(STANDARD_ERROR, held.read())


@contextmanager
def _without_input() -> Iterator[None]:
    """Nothing can be asked."""
    terminal = sys.stdin
    with Path(os.devnull).open() as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = terminal
