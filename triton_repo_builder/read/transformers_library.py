"""The only importer of transformers, which takes seconds to import.

It can run the Python files of a model (``auto_map``, ``trust_remote_code``), and asks on the terminal whether
it shall. Here it never does either: a model's folder is data.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from triton_repo_builder import containment, files
from triton_repo_builder.errors import Code, TrbError

COUNTS = ("extra_ids", "num_madeup_words", "offset")
"""Settings of tokenizers that are numbers of tokens to make."""
MOST = 10_000
"""The largest of them; T5 has 100."""


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
    """``KIND.from_pretrained`` of a model's folder, or of one JSON file: from the files there alone.

    Raises ``TrbError`` if one of them is a link that leads out, and what transformers raises.
    """
    folder = path if path.is_dir() else path.parent
    for file in sorted(folder.iterdir()):
        containment.within(folder, file.name)
    _check_counts(folder)
    with _without_input(), panics():
        return getattr(load(), kind).from_pretrained(
            str(path), local_files_only=True, trust_remote_code=False, **settings
        )


def _check_counts(folder: Path) -> None:
    """``TrbError`` if tokenizer_config.json asks for more tokens than memory may hold."""
    file = containment.within(folder, "tokenizer_config.json")
    try:
        stated = files.load_json(files.read(file), halves=True) if file else {}
    except (OSError, ValueError):
        return  # transformers says what is wrong
    for name in COUNTS:
        number = stated.get(name) if isinstance(stated, dict) else None
        if isinstance(number, (int, float)) and number > MOST:
            raise TrbError(
                Code.TOKENIZER_INVALID,
                f"its {name} is {number:,}: at most {MOST:,} tokens can be made so",
                where=str(file),
                remedy="get the original file again from the model's source",
            )


@contextmanager
def panics() -> Iterator[None]:
    """A panic of the Rust library ``tokenizers``, which is no ``Exception``, raised as ``ValueError``."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise ValueError(str(error)) from None
        raise


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
